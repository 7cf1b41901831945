"""The columns and the table of budgets, for their row in `sqlite_migrations.py`."""

BUDGETS = """
    -- Answers and rounds recorded here and not taken back. Not the sums beside them: those may
    -- show what another session has paid for.
    alter table session add column paid_steps integer not null default 0;
    alter table session add column paid_tokens integer not null default 0;
    alter table session add column paid_microusd integer not null default 0;
    alter table session add column paid_unknown integer not null default 0;
    update session
    set
      paid_steps = (
        select count(*)
        from step
        join answer on answer.step_id = step.id
        where step.session_id = session.id and answer.taken_back_ms is null
      ),
      paid_tokens = input_tokens + output_tokens,
      paid_microusd = cost_microusd,
      paid_unknown = unknown_costs;

    -- A digest of the tool calls of the last answer, null = it made none; how many answers in a
    -- row have made them; how many had been paid before that row.
    alter table session add column calls blob;
    alter table session add column repeats integer not null default 0;
    alter table session add column row_began integer not null default 0;

    -- A session that has caps of its own, or was asked about.
    create table budget (
      session_id integer primary key references session,
      -- By a person, for this session; null = nothing is set.
      set_steps integer,
      set_tokens integer,
      set_microusd integer,
      set_repeats integer,
      set_action text,
      set_ms integer,
      set_by text,
      -- By its agent, when it last said something.
      said_steps integer,
      said_tokens integer,
      said_microusd integer,
      said_repeats integer,
      said_action text,
      -- Up to where people let it go on; of repeats in the row of that number alone.
      until_steps integer,
      until_tokens integer,
      until_microusd integer,
      until_repeats integer,
      until_row integer,
      -- How often a person changed something of it.
      changes integer not null default 0
    );
    create index approval_budget on approval (session_id, digest) where kind = 'budget';

    -- Of the status that is stored; all null = nobody said why.
    alter table session add column status_reason text;
    alter table session add column status_by text;
    alter table session add column status_ms integer;
    """
