-- The newest state of runs, arms and plans. The store is append-only: a changed state is a new row.
--
-- The state itself (status, reason, ...) is the newest row's, NULLs included. What was found out on the way (versions,
-- sizes, checksums, ...) is each column's newest value that is known, so that a state row which repeats less loses nothing.

-- One row a run.
create or replace view runs_latest as
with newest as (
    select
        run_id,
        min(event_at) as started_at,
        max(event_at) as event_at,
        max_by({'status': status, 'reason': reason}, (event_at, status <> 'running')) as state,
        max_by(columns(* exclude (run_id, event_at, status, reason)), event_at) as '\0'
    from runs
    group by run_id
)
select run_id, state.status as status, state.reason as reason, * exclude (run_id, state) from newest;

-- One row an arm of a run.
create or replace view arms_latest as
with newest as (
    select
        run_id,
        arm_id,
        min(event_at) as planned_at,
        max(event_at) as event_at,
        max_by(
            {'status': status, 'reason': reason, 'detail': detail, 'advice': advice, 'log_line': log_line},
            (event_at, status <> 'planned', status <> 'running')) as state,
        max_by(columns(* exclude (run_id, arm_id, event_at, status, reason, detail, advice, log_line)), event_at) as '\0'
    from arms
    group by run_id, arm_id
)
select
    run_id,
    arm_id,
    state.status as status,
    state.reason as reason,
    state.detail as detail,
    state.advice as advice,
    state.log_line as log_line,
    * exclude (run_id, arm_id, state)
from newest;

-- One row a planned request. A run that was carried on may have written its plan again.
create or replace view plan_latest as
select
    run_id,
    arm_id,
    suite_id,
    level_id,
    iteration,
    any_value(columns(* exclude (run_id, arm_id, suite_id, level_id, iteration))) as '\0'
from plan
group by run_id, arm_id, suite_id, level_id, iteration;

-- Printed figures, each once: a row that is stored twice is one figure.
create or replace view published_once as
select distinct * from published;

-- The levels of a run's suite, from its plan, or as a published report names them.
create or replace view levels as
select run_id, suite_id, level_id, any_value(level_index) as level_index, any_value(level_title) as title,
    any_value(points)::double as points, any_value(prompt_hash) as prompt_hash, any_value(grading_hash) as grading_hash
from plan
group by run_id, suite_id, level_id
union all by name
select run_id, suite_id, level_id, row_number() over (partition by run_id, suite_id order by level_id) as level_index,
    any_value(title) as title, any_value(value) as points
from published_once
where metric = 'level_points' and run_id not in (select run_id from plan)
group by run_id, suite_id, level_id;
