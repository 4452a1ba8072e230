-- Which levels still tell arms apart. A level that every arm always passed, or no arm ever, says 'nothing' about them;
-- any other says 'something', which may be little. `k` of `n` measured answers of all arms passed. `says` is NULL where
-- fewer than two arms were measured at the level. That a level said nothing here is no proof that it never would: with
-- few answers look at the intervals of level_pass_rates.
create or replace view saturation as
with counted as (
    select run_id, suite_id, level_id,
        count(*) filter (where n > 0) as n_arms,
        count(*) filter (where n = 0) as n_arms_unmeasured,
        sum(k) filter (where n > 0) as k,
        sum(n) as n,
        bool_and(k = n) filter (where n > 0) as all_pass,
        bool_and(k = 0) filter (where n > 0) as all_fail
    from level_pass_rates
    group by run_id, suite_id, level_id
)
select
    l.run_id, l.suite_id, l.level_id, l.level_index, l.title as level_title, l.points as level_points,
    coalesce(c.n_arms, 0) as n_arms, coalesce(c.n_arms_unmeasured, 0) as n_arms_unmeasured, c.k, c.n,
    case when c.n_arms >= 2 then case when c.all_pass or c.all_fail then 'nothing' else 'something' end end as says,
    case
        when c.n_arms >= 2 and c.all_pass then 'every arm always passed'
        when c.n_arms >= 2 and c.all_fail then 'no arm ever passed'
        when coalesce(c.n_arms, 0) < 2 then 'fewer than two arms were measured'
    end as reason
from levels l
left join counted c using (run_id, suite_id, level_id);

-- The same for a run: its levels by what they say, and the percent of the suite's points that can still tell arms apart
-- (NULL where a level has no points or was not measured for two arms).
create or replace view saturation_summary as
select
    run_id, suite_id,
    count(*) as n_levels,
    count(*) filter (where says = 'something') as n_telling,
    count(*) filter (where says = 'nothing') as n_saturated,
    count(*) filter (where says is null) as n_unknown,
    sum(level_points) as points,
    case when count(says) = count(*) and count(level_points) = count(*) and sum(level_points) > 0
        then 100.0 * coalesce(sum(level_points) filter (where says = 'something'), 0) / sum(level_points) end as telling_pct,
    case
        when count(says) < count(*) then (count(*) - count(says)) || ' of ' || count(*) || ' levels were measured for fewer than two arms'
        when count(level_points) < count(*) then 'the points of a level are not known'
        when sum(level_points) <= 0 then 'no level has points'
    end as reason
from saturation
group by run_id, suite_id;
