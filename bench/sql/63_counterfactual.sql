-- How much of what an arm lost is naming and how much is ability, per level. A failure is naming when the answer lacks
-- a name that the tests need, and passes once that name is bound to what the answer offers in its place (the newest
-- grade of kind `counterfactual` of the same code under the same tests). Every other failure is ability. It explains
-- the headline and never changes it.
--
-- `points_lost`, `points_naming` and `points_ability` are per measured answer: summed over the levels they are the
-- points that an iteration of the arm lost on average. `n_untried`: failures for a name that were not graded again.
create or replace view naming_and_ability as
with again as (
    select run_id, generation_id, grading_hash, code, passed and not coalesce(suspect, false) as passes, detail
    from grades
    where grade_kind = 'counterfactual'
    qualify row_number() over (partition by run_id, generation_id, grading_hash, md5(code) order by graded_at desc, grade_id desc) = 1
),
judged as (
    select
        c.run_id, c.arm_id, c.suite_id, c.identity, c.level_id, c.passed, c.points, c.max_points,
        not c.passed as failed,
        not c.passed and c.outcome = 'interface' as interface,
        not c.passed and c.outcome = 'interface' and coalesce(a.passes, false) as naming,
        not c.passed and c.outcome = 'interface' and a.generation_id is null as untried
    from cells c
    -- The code of the few that need it.
    left join (
        select run_id, grade_id, any_value(grading_hash) as grading_hash, any_value(code) as code
        from grades
        where outcome = 'interface'
        group by run_id, grade_id
    ) h on h.run_id = c.run_id and h.grade_id = c.grade_id
    left join again a on a.run_id = c.run_id and a.generation_id = c.generation_id and a.grading_hash = h.grading_hash and a.code = h.code
    where c.planned and c.measured
)
select
    j.run_id, j.arm_id, j.suite_id, j.identity, j.level_id, any_value(l.level_index) as level_index,
    count(*) as n,
    count(*) filter (where failed) as n_failed,
    count(*) filter (where interface) as n_interface,
    count(*) filter (where naming) as n_naming,
    count(*) filter (where failed and not naming) as n_ability,
    count(*) filter (where untried) as n_untried,
    sum(j.max_points - j.points) / count(*) as points_lost,
    coalesce(sum(j.max_points - j.points) filter (where naming), 0.0) / count(*) as points_naming,
    coalesce(sum(j.max_points - j.points) filter (where failed and not naming), 0.0) / count(*) as points_ability
from judged j
left join levels l using (run_id, suite_id, level_id)
group by j.run_id, j.arm_id, j.suite_id, j.identity, j.level_id;
