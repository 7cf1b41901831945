"""The tables of durable tools, for their row in `sqlite_migrations.py`."""

DURABLE_TOOLS = """
    create table durable_call (
      id integer primary key autoincrement,
      -- What callers know it by.
      name text not null unique,
      session_id integer not null references session,
      -- Over tool, canonical arguments and key: equal calls are counted.
      digest blob not null,
      occurrence integer not null,
      tool text not null,
      key text,
      call_id text,
      state text not null,
      created_ms integer not null,
      -- Who was told to run it last, by which begin, when; null = nobody, or nobody said.
      owner text,
      begin_id text,
      begun_ms integer,
      lease_ms integer,
      runs integer not null,
      -- By its name: asked about this call, or about the model's own, for which it stands.
      approval_name text,
      outcome text,
      finished_ms integer,
      reason text,
      settled_as text,
      settled_by text,
      settled_why text,
      settled_ms integer,
      forgotten_ms integer,
      forgotten_by text,
      forgotten_why text,
      -- Packed: the arguments as sent and as a person edited them, the JSON of the outcome.
      size integer not null,
      arguments blob not null,
      edited_size integer,
      edited blob,
      value_size integer,
      value blob
    );
    create unique index durable_equal on durable_call (session_id, digest, occurrence);
    create index durable_session on durable_call (session_id, id);
    create index durable_state on durable_call (state, id);
    -- No approval stands for two calls.
    create unique index durable_approval on durable_call (approval_name)
      where approval_name is not null;

    -- Which owner has taken which call; '' = an owner without a name.
    create table durable_taken (
      durable_id integer not null references durable_call,
      owner text not null,
      begin_id text,
      call_id text,
      primary key (durable_id, owner)
    ) without rowid;

    -- SQLite cannot take a "not null" back: the table is made anew, with a step or a call.
    alter table approval rename to approval_before;
    create table approval (
      id integer primary key,
      name text not null unique,
      session_id integer not null references session,
      -- null = of a durable call.
      step_id integer references step,
      -- null = of a request that has no answer yet.
      answer_id integer references answer,
      -- null = of a step.
      durable_id integer references durable_call,
      kind text not null,
      choice integer not null,
      position integer not null,
      digest blob not null,
      generation integer not null,
      tool text not null,
      call_id text,
      rule text not null,
      why text not null,
      on_reject text not null,
      deadline_ms integer,
      created_ms integer not null,
      asked_ms integer not null,
      is_approved integer,
      decided_ms integer,
      decided_by text,
      reason text,
      follows text,
      is_quiet integer not null default 0,
      edited_size integer,
      edited blob,
      size integer not null,
      arguments blob not null,
      check ((step_id is null) = (durable_id is not null))
    );
    insert into approval (
      id, name, session_id, step_id, answer_id, kind, choice, position, digest, generation,
      tool, call_id, rule, why, on_reject, deadline_ms, created_ms, asked_ms, is_approved,
      decided_ms, decided_by, reason, follows, is_quiet, edited_size, edited, size, arguments
    )
    select id, name, session_id, step_id, answer_id, kind, choice, position, digest, generation,
      tool, call_id, rule, why, on_reject, deadline_ms, created_ms, asked_ms, is_approved,
      decided_ms, decided_by, reason, follows, is_quiet, edited_size, edited, size, arguments
    from approval_before;
    drop table approval_before;
    create unique index approval_answer
      on approval (answer_id, choice, position, kind, digest, generation)
      where answer_id is not null;
    create unique index approval_request on approval (step_id, kind, digest, generation)
      where answer_id is null and step_id is not null;
    create unique index approval_durable on approval (durable_id, generation)
      where durable_id is not null;
    create index approval_asked on approval (asked_ms, id);
    create index approval_session on approval (session_id, asked_ms, id);
    create index approval_undecided on approval (asked_ms, id) where is_approved is null;
    create index approval_waiting on approval (session_id, deadline_ms)
      where is_approved is null;
    create index approval_refused on approval (session_id)
      where is_approved = 0 and follows = 'continue';
    """
