-- The headline grade of each generation that counts: the newest grade of kind `headline`. Regrades, counterfactuals and
-- published verdicts never count; a regrade that was adopted was stored again as a headline, and says so in
-- `adopted_from`.
--
-- `verdict_passed` is what the tests say; `passed` and `points` are the headline's, where a suspect verdict counts as
-- failed until a person decides.
create or replace view grades_latest as
with newest as (
    select *
    from grades
    where grade_kind = 'headline'
    qualify row_number() over (partition by generation_id order by graded_at desc, grade_id desc) = 1
)
select
    h.* exclude (passed, points, suspect),
    g.identity,
    g.in_plan,
    coalesce(h.suspect, false) as suspect,
    v.verdict_passed,
    case when v.verdict_passed is null then null else v.verdict_passed and not coalesce(h.suspect, false) end as passed,
    case when v.verdict_passed is null then null when coalesce(h.suspect, false) then 0.0 else coalesce(h.points, 0.0) end as points,
    case when v.verdict_passed is null then null else coalesce(h.points, 0.0) end as verdict_points
from newest h
join generations_latest g using (generation_id),
lateral (
    -- The prompt that does not fit and the answer that does not end are answers that do not pass.
    select case
        when h.outcome = 'not_measured' then null
        when h.passed is null and h.outcome in ('context_overflow', 'time_limit') then false
        else h.passed
    end as verdict_passed
) v;
