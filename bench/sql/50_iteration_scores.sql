-- The score of each iteration: points earned among the suite's points, in percent (0 to 100). An iteration with a level
-- that was not measured has no score (NULL) and says why; `points_so_far` is what its other levels earned.
create or replace view iteration_scores as
select
    run_id, arm_id, suite_id, identity, iteration,
    count(*) as n_levels,
    count(passed) as n_measured,
    case when count(passed) = count(*) then sum(points) end as points,
    sum(points) as points_so_far,
    sum(max_points) as max_points,
    iteration_score(count(*), count(passed), sum(points), sum(max_points)) as score,
    iteration_score(count(*), count(passed), sum(verdict_points), sum(max_points)) as score_with_suspects,
    case when count(passed) < count(*) then
        (count(*) - count(passed)) || ' of ' || count(*) || ' levels without a verdict: '
        || string_agg(distinct gap, ', ' order by gap)
    end as reason
from cells
where planned
group by run_id, arm_id, suite_id, identity, iteration
union all by name
-- Scores that another report printed. They say nothing of the levels.
select run_id, arm_id, suite_id, null::varchar as identity, iteration, value as score, value as score_with_suspects, 100.0 as max_points
from published_once
where metric = 'score' and grade_kind = 'headline';
