-- Passes of each level over an arm's iterations: k of n in percent, with the Wilson 95 % interval. An answer that was
-- not measured is in neither k nor n. One level is one task, so its iterations are its trials; there is no interval
-- over several levels together here, because answers to one task are not independent over tasks.
create or replace view level_pass_rates as
with counted as (
    select
        run_id, arm_id, suite_id, identity, level_id,
        count(*) filter (where passed) as k,
        count(passed) as n,
        count(*) as n_planned,
        count(*) filter (where verdict_passed) as k_with_suspects,
        count(*) filter (where suspect) as n_suspect
    from cells
    where planned
    group by run_id, arm_id, suite_id, identity, level_id
    union all by name
    select run_id, arm_id, suite_id, null::varchar as identity, level_id,
        try_cast(value as bigint) as k, n, n as n_planned, try_cast(value as bigint) as k_with_suspects
    from published_once
    -- A number of passes that is none is no figure; `caveats` says so.
    where metric = 'level_passed' and grade_kind = 'headline' and value between 0 and coalesce(n, 1e9) and value = floor(value)
)
select
    c.run_id, c.arm_id, c.suite_id, c.identity, c.level_id, l.level_index, l.title as level_title, l.points as level_points,
    c.k, c.n, c.n_planned,
    case when c.n > 0 then 100.0 * c.k / c.n end as pass_rate,
    wilson_low(c.k, c.n) as wilson_low,
    wilson_high(c.k, c.n) as wilson_high,
    'Wilson 95 %' as method,
    c.k_with_suspects, coalesce(c.n_suspect, 0) as n_suspect
from counted c
left join levels l using (run_id, suite_id, level_id);
