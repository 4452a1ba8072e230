-- What a person decided on suspect verdicts: the newest decision on each grade.
create or replace view reviews_latest as
select *
from reviews
qualify row_number() over (partition by grade_id order by decided_at desc, review_id desc) = 1;

-- The headline grade of every generation: the newest grade of kind `headline`. Regrades, counterfactuals and published
-- verdicts never count; a regrade that was adopted was stored again as a headline, and says so in `adopted_from`.
--
-- `verdict_passed` is what the tests say; `passed` and `points` are the headline's, where a suspect verdict counts as
-- failed until a person decides. A decision holds for the grade it names, and for a later grade of the same answer as
-- long as code, tests, verdict and marks are the same. Accepted: the tests' verdict counts. Rejected: it is a failure
-- (`tampering`), whatever the tests say. `suspect` is true only while nobody has decided.
create or replace view headline_grades as
with newest as (
    select *
    from grades
    where grade_kind = 'headline'
    qualify row_number() over (partition by run_id, generation_id order by graded_at desc, grade_id desc) = 1
),
-- The few that somebody decided on, read apart: so a filter on a run reaches the files from both places.
reviewed as (
    select *
    from grades
    where grade_kind = 'headline' and generation_id in (select generation_id from reviews)
    qualify row_number() over (partition by run_id, generation_id order by graded_at desc, grade_id desc) = 1
),
decided as (
    select
        h.run_id, h.grade_id,
        max_by({'decision': r.decision, 'reviewer': r.reviewer, 'note': r.note, 'at': r.decided_at}, (r.decided_at, r.review_id))
            as review
    from reviewed h
    join reviews_latest r
        on r.generation_id = h.generation_id
        and (r.grade_id = h.grade_id
            or r.code_sha256 = sha256(h.code) and r.grading_hash = h.grading_hash and r.outcome = h.outcome
                and list_sort(r.suspect_reasons) = list_sort(h.suspect_reasons))
    where h.suspect
    group by h.run_id, h.grade_id
),
-- Points that are none: a pass without any, or others than 0 to the level's. Such a grade says nothing.
checked as (
    select * replace (case when no_points then 'not_measured' else outcome end as outcome,
        case when no_points then 'its grade has ' || coalesce(points::varchar, 'no') || ' points of '
            || coalesce(max_points::varchar, 'an unknown number') else detail end as detail)
    from (
        select *,
            passed and points is null or points is not null and not (points between 0 and coalesce(max_points, 1e12) + 1e-9)
                as no_points
        from newest
    )
),
joined as (
    select
        h.*, d.review,
        coalesce(h.suspect, false) and d.review is null as waiting,
        coalesce(d.review.decision = 'rejected', false) as rejected,
        -- The prompt that does not fit and the answer that does not end are answers that do not pass.
        case
            when h.outcome = 'not_measured' then null
            when d.review.decision = 'rejected' then false
            when h.passed is null and h.outcome in ('context_overflow', 'time_limit', 'loop_ended') then false
            else h.passed
        end as verdict
    from checked h
    left join decided d using (run_id, grade_id)
)
select
    * exclude (no_points, passed, points, suspect, outcome, review, waiting, rejected, verdict),
    case when rejected then 'tampering' else outcome end as outcome,
    waiting as suspect,
    review.decision as decision,
    review.reviewer as reviewer,
    review.note as review_note,
    review.at as decided_at,
    verdict as verdict_passed,
    case when verdict is null then null else verdict and not waiting end as passed,
    case when verdict is null then null when waiting or rejected then 0.0 else coalesce(points, 0.0) end as points,
    case when verdict is null then null when rejected then 0.0 else coalesce(points, 0.0) end as verdict_points
from joined;

-- The headline grade of each generation that counts.
create or replace view grades_latest as
select h.*, g.identity, g.in_plan
from headline_grades h
join generations_latest g using (run_id, generation_id);
