"""The columns and tables of forks and of deletion, for their row in `sqlite_migrations.py`."""

FORKS = """
    -- The session it was forked from, by its name: that may be gone. null = it was not forked.
    alter table session add column fork_of text;
    -- From where on it does not share; both null = it shares all.
    alter table session add column fork_step_number integer;
    alter table session add column fork_index integer;
    alter table session add column forked_by text;
    alter table session add column shared_steps integer not null default 0;
    -- Answers of its steps with an id up to this were paid in the session it was forked from.
    alter table session add column shared_answer_id integer not null default 0;

    -- What was decided about calls of its answers where they were copied from, as JSON; it
    -- allows nothing. null = nothing was. Of an approval: about the same call.
    alter table step add column precedents text;
    alter table approval add column earlier text;
    -- It is what an agent got where the answer was copied from, and is not decided here.
    alter table delivered add column is_borrowed integer not null default 0;

    -- What a deletion has still to remove: a 'session', whose own row is gone; content that
    -- nothing may refer to any more, a 'node' or a 'prompt'.
    create table leftover (
      kind text not null,
      id integer not null,
      -- Of a session: its name, and its last event. Another may have the name by now.
      name text,
      last_event_id integer,
      primary key (kind, id)
    ) without rowid;

    -- Who refers to what a removal may take with it.
    create index step_envelope on step (envelope_id);
    create index node_parent on node (parent_id) where parent_id is not null;
    create index node_blob on node (blob_id);
    create index envelope_part_blob on envelope_part (blob_id);
    create index blob_answer on blob (answer_id) where answer_id is not null;
    """
