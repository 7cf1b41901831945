"""The tables of edits and reruns, for their row in `sqlite_migrations.py`."""

REVISIONS = """
    -- An answer that a person put in place of another: written, or asked for again.
    create table revision (
      answer_id integer primary key references answer,
      session_id integer not null references session,
      replaces_id integer not null references answer,
      kind text not null,
      made_by text,
      reason text,
      -- What the model was asked in place of the step's own request, as JSON, packed; null =
      -- that, or it was not asked.
      size integer,
      request blob
    );
    create index revision_session on revision (session_id);

    -- 'edit' or 'rerun'; null = a rollback, or a restore.
    alter table rollback add column verb text;
    -- Which answers stand since, as JSON: [[index of the step, from, to], ...].
    alter table rollback add column swaps text not null default '[]';

    -- Answers that a person went back over: they stand again only if a person wants it.
    create table set_aside (answer_id integer primary key references answer);

    -- Since when a person has another answer stand than the one it asks about; null = it does.
    alter table approval add column replaced_ms integer;
    """
