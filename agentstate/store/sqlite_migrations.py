"""What the SQLite record has become step by step: a list of migrations that only grows.

A test holds the text of those that files have had. How they are run is in `sqlite_schema.py`.

Words: a **blob** is a part of a request, stored once. A **node** is a prefix of a request: a part
and the node before it; its digest names the whole prefix, so equal prefixes are one node. An
**envelope** is the rest of a request body. A step points at one envelope and one node. What the
packed columns hold is said in `sqlite_pack.py`. A blob packed with an answer as dictionary can only
be read with it: who deletes the answer packs such a blob anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.store.sqlite_migration_budgets import BUDGETS
from agentstate.store.sqlite_migration_durable import DURABLE_TOOLS
from agentstate.store.sqlite_migration_forks import FORKS
from agentstate.store.sqlite_migration_revisions import REVISIONS


@dataclass(frozen=True, slots=True)
class Migration:
    """One step forward. Its number is its place in the list, from 1."""

    name: str
    reason: str
    sql: str


MIGRATIONS = (
    Migration(
        "first tables",
        "sessions, steps with their requests, answers and attempts",
        """
        create table migration (
          version integer primary key,
          name text not null,
          reason text not null,
          applied_ms integer not null
        );

        -- Its one row is what a check of the disk writes.
        create table pulse (id integer primary key check (id = 1), checked_ms integer not null);
        insert into pulse (id, checked_ms) values (1, 0);

        create table session (
          id integer primary key,
          name text not null unique,
          status text not null default 'RUNNING',
          created_ms integer not null,
          updated_ms integer not null,
          steps integer not null default 0,
          next_index integer not null default 0,
          last_step_number integer,
          input_tokens integer not null default 0,
          output_tokens integer not null default 0,
          cost_microusd integer not null default 0,
          unknown_costs integer not null default 0,
          replays integer not null default 0,
          saved_microusd integer not null default 0,
          prompt_id integer references prompt
        );
        create index session_updated on session (updated_ms, id);

        create table run (
          id integer primary key,
          session_id integer not null references session,
          name text not null,
          unique (session_id, name)
        );

        -- The steps of an agent's loop share one prompt; a session points at its last one.
        create table prompt (id integer primary key, text text not null);

        create table blob (
          id integer primary key,
          digest blob not null unique,
          answer_id integer references answer,
          size integer not null,
          content blob not null
        );

        create table node (
          id integer primary key,
          digest blob not null unique,
          parent_id integer references node,
          blob_id integer not null references blob,
          depth integer not null
        );

        create table envelope (
          id integer primary key,
          digest blob not null unique,
          list_key text not null,
          size integer not null,
          content blob not null
        );

        create table envelope_part (
          envelope_id integer not null references envelope,
          position integer not null,
          name text not null,
          blob_id integer not null references blob,
          primary key (envelope_id, position)
        ) without rowid;

        -- Ids of steps and answers leave the record (decisions name them), so none is used twice.
        create table step (
          id integer primary key autoincrement,
          session_id integer not null references session,
          step_index integer not null,
          step_number integer not null,
          state text not null,
          -- The answer that replays, else the last one taken back; null = none ever came.
          answer_id integer references answer,
          is_claim_answered integer not null default 0,
          run_id integer references run,
          call_id text,
          occurrence integer not null,
          dialect text not null,
          path text not null,
          model text not null,
          streams integer not null,
          is_mock integer not null,
          raw blob not null,
          exact blob not null,
          pinned blob not null,
          masked blob not null,
          envelope_id integer not null references envelope,
          node_id integer references node,
          created_ms integer not null,
          replays integer not null default 0,
          replayed_ms integer,
          saved_microusd integer not null default 0,
          rolled_back_ms integer,
          prompt_id integer not null references prompt,
          -- Why the call went upstream although it looked like a recorded one, as JSON; null = it
          -- did not.
          miss text
        );
        create unique index step_index on step (session_id, step_index);
        -- Eight bytes of a key find its steps; the whole key is compared in the row.
        create index step_raw on step (session_id, substr(raw, 1, 8));
        create index step_exact on step (session_id, substr(exact, 1, 8));
        create index step_pinned on step (session_id, substr(pinned, 1, 8));
        create index step_masked on step (session_id, substr(masked, 1, 8));
        create index step_node on step (node_id) where node_id is not null;
        -- Finds the claims of a dead process at once, however long the record.
        create index step_in_flight on step (id) where state = 'in_flight';

        -- The large columns come last, so that reading the others loads one page.
        create table answer (
          id integer primary key autoincrement,
          step_id integer not null references step,
          taken_back_ms integer,
          answered_ms integer not null,
          provider text not null,
          model text not null,
          response_id text,
          finish_reason text,
          input_tokens integer,
          output_tokens integer,
          cached_tokens integer,
          cache_write_tokens integer,
          reasoning_tokens integer,
          usage_estimated integer not null,
          cost_microusd integer,
          latency_ms integer not null,
          first_content_ms integer,
          status integer not null,
          form text not null,
          is_sealed integer not null,
          -- The text for lists, or where it stands in the content.
          text text not null,
          text_offset integer,
          text_length integer,
          size integer not null,
          pace_size integer not null,
          pace blob not null,
          content blob not null
        );
        create index answer_step on answer (step_id);

        create table answer_tail (
          answer_id integer not null references answer,
          position integer not null,
          pace blob not null,
          size integer not null,
          content blob not null,
          primary key (answer_id, position)
        ) without rowid;

        create table attempt (
          step_id integer not null references step,
          position integer not null,
          provider text not null,
          model text not null,
          started_ms integer not null,
          ended_ms integer not null,
          status integer,
          error_code text,
          error text,
          first_byte_ms integer,
          dropped text,
          excerpt blob not null,
          primary key (step_id, position)
        ) without rowid;

        create table tool_call (
          answer_id integer not null references answer,
          choice integer not null,
          position integer not null,
          session_id integer not null references session,
          call_id text,
          name text not null,
          kind text not null,
          -- Where the arguments stand in the answer's content, else themselves, packed.
          quote_offset integer,
          quote_length integer,
          size integer,
          arguments blob,
          primary key (answer_id, choice, position)
        ) without rowid;
        create index tool_call_id on tool_call (session_id, call_id) where call_id is not null;

        -- What each run got, as a replay or by recording it: no step answers a run twice.
        create table served (
          run_id integer not null references run,
          step_id integer not null references step,
          call_id text,
          at_ms integer not null,
          is_delivered integer not null default 0,
          primary key (run_id, step_id)
        ) without rowid;
        create index served_step on served (step_id);

        -- A request that a step answered though it was not quite its own: it is from now on.
        create table alias (
          session_id integer not null references session,
          exact blob not null,
          step_id integer not null references step,
          primary key (session_id, exact, step_id)
        ) without rowid;
        create index alias_step on alias (step_id);
        """,
    ),
    Migration(
        "the gate",
        "approvals; rounds after a refusal; what agents got instead of an answer; releases",
        """
        create table approval (
          id integer primary key,
          -- What callers know it by.
          name text not null unique,
          session_id integer not null references session,
          step_id integer not null references step,
          -- null = of a request that has no answer yet.
          answer_id integer references answer,
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
          -- null = never.
          deadline_ms integer,
          created_ms integer not null,
          asked_ms integer not null,
          -- The decision; null = there is none. `follows` is what follows a rejection.
          is_approved integer,
          decided_ms integer,
          decided_by text,
          reason text,
          follows text,
          -- Arguments as edited, packed; null = as the model sent them.
          edited_size integer,
          edited blob,
          size integer not null,
          arguments blob not null
        );
        -- What an approval is bound to; so none is asked twice.
        create unique index approval_answer
          on approval (answer_id, choice, position, kind, digest, generation)
          where answer_id is not null;
        create unique index approval_request on approval (step_id, kind, digest, generation)
          where answer_id is null;
        create index approval_asked on approval (asked_ms, id);
        create index approval_session on approval (session_id, asked_ms, id);
        create index approval_undecided on approval (asked_ms, id) where is_approved is null;
        -- Whether a session waits for a person.
        create index approval_waiting on approval (session_id, deadline_ms)
          where is_approved is null;
        -- Whether a session has what later requests are told of; most have nothing.
        create index approval_refused on approval (session_id)
          where is_approved = 0 and follows = 'continue';

        -- Answers that came after a refusal. A table of its own: a column that is added to `answer`
        -- stands behind its content and could only be read together with it.
        create table round (
          root_id integer not null references answer,
          number integer not null,
          answer_id integer not null unique references answer,
          primary key (root_id, number)
        ) without rowid;

        -- What the agent got in place of an answer, packed like one.
        create table delivered (
          answer_id integer primary key references answer,
          status integer not null,
          form text not null,
          is_sealed integer not null,
          size integer not null,
          pace_size integer not null,
          pace blob not null,
          content blob not null
        );

        create table released (
          id integer primary key autoincrement,
          answer_id integer not null references answer,
          run_name text,
          released_ms integer not null,
          is_written integer not null default 0
        );
        create index released_answer on released (answer_id);
        """,
    ),
    Migration(
        "events and deliveries",
        "what happened and who is told; sessions found idle; approvals of which nobody is told",
        """
        create table event (
          id integer primary key autoincrement,
          -- What callers and webhooks know it by.
          name text not null unique,
          kind text not null,
          -- By its name: an event may be of a session that is not on record.
          session text not null,
          step_number integer,
          step_index integer,
          approval_name text,
          is_sample integer not null,
          created_ms integer not null,
          -- JSON, packed.
          size integer not null,
          facts blob not null
        );
        create index event_session on event (session);

        create table delivery (
          id integer primary key autoincrement,
          event_id integer not null references event,
          hook text not null,
          state text not null default 'due',
          tries integer not null default 0,
          -- When it is tried next; null = it is not.
          next_ms integer,
          -- Until when somebody is sending it; null = nobody is.
          leased_ms integer,
          status integer,
          error text,
          settled_ms integer
        );
        create unique index delivery_event on delivery (event_id, hook);
        -- The queue; with the hook, so that those of one that has to wait are cheap to pass over.
        create index delivery_due on delivery (next_ms, id, hook) where state = 'due';
        create index delivery_leased on delivery (leased_ms) where leased_ms is not null;
        create index delivery_state on delivery (state, id, hook);

        -- The time of the last activity when it was found idle; null = it never was.
        alter table session add column idle_ms integer;

        alter table approval add column is_quiet integer not null default 0;
        """,
    ),
    Migration(
        "control over a run",
        "rollbacks that can be undone; pauses; what a session is called, its parent and its tags",
        """
        -- Each row changes which steps of a session are active; a restore undoes an earlier one.
        create table rollback (
          session_id integer not null references session,
          -- Counts within the session, from 1.
          number integer not null,
          made_ms integer not null,
          made_by text,
          -- What was asked for; both null = it is a restore, of the row that `undoes` says.
          step_number integer,
          step_index integer,
          undoes integer,
          -- How many steps there were: later ones were recorded since.
          next_index integer not null,
          -- Indexes of the steps it made inactive and active again, as JSON: [[first, last], ...].
          taken text not null,
          returned text not null,
          -- Of those it made inactive.
          steps integer not null,
          input_tokens integer not null,
          output_tokens integer not null,
          cost_microusd integer not null,
          unknown_costs integer not null,
          primary key (session_id, number)
        ) without rowid;

        create table tag (
          session_id integer not null references session,
          name text not null,
          value text not null,
          primary key (session_id, name)
        ) without rowid;

        -- `name` is what its agent knows a session by; this is for people.
        alter table session add column title text;
        -- By its name: it may not be on record.
        alter table session add column parent text;
        -- A digest of what its agent last said of it, so that saying it again changes nothing.
        alter table session add column said blob;
        alter table session add column paused_ms integer;
        alter table session add column pause_reason text;
        alter table session add column paused_by text;
        create index session_paused on session (name) where paused_ms is not null;
        """,
    ),
    Migration(
        "durable tools",
        "tool calls that must not act twice; approvals of such a call, which has no step",
        DURABLE_TOOLS,
    ),
    Migration(
        "forks and deletion",
        "sessions that begin as another stood; sessions that go, with what only they refer to",
        FORKS,
    ),
    Migration(
        "edits and reruns",
        "answers that a person put in place of others; which one stands, and how to go back",
        REVISIONS,
    ),
    Migration(
        "budgets",
        "what a session has paid, its own caps; why it stands as it does",
        BUDGETS,
    ),
    Migration(
        "what replays saved",
        "sums by time, for charts: a step only knows its last replay",
        """
        create table saving (
          -- When the slot begins.
          slot_ms integer primary key,
          replays integer not null,
          saved_microusd integer not null,
          -- What the models took when they were asked.
          saved_ms integer not null
        );
        """,
    ),
    Migration(
        "censored answers",
        "answers out of which a known key was taken, so that they are given to nobody again",
        "create table censored (answer_id integer primary key references answer);",
    ),
)
