-- What a person decided on suspect verdicts: the newest decision on each grade.
create or replace view reviews_latest as
select *
from reviews
qualify row_number() over (partition by grade_id order by decided_at desc, review_id desc) = 1;

-- The headline grade of each generation that counts: the newest grade of kind `headline`. Regrades, counterfactuals and
-- published verdicts never count; a regrade that was adopted was stored again as a headline, and says so in
-- `adopted_from`.
--
-- `verdict_passed` is what the tests say; `passed` and `points` are the headline's, where a suspect verdict counts as
-- failed until a person decides. A decision holds for the grade it names, and for a later grade of the same answer as
-- long as code, tests, verdict and marks are the same. Accepted: the tests' verdict counts. Rejected: it is a failure
-- (`tampering`), whatever the tests say. `suspect` is true only while nobody has decided.
create or replace view grades_latest as
with newest as (
    select *
    from grades
    where grade_kind = 'headline'
    qualify row_number() over (partition by generation_id order by graded_at desc, grade_id desc) = 1
),
decided as (
    select
        h.grade_id,
        max_by({'decision': r.decision, 'reviewer': r.reviewer, 'note': r.note, 'at': r.decided_at}, (r.decided_at, r.review_id))
            as review
    from newest h
    join reviews_latest r
        on r.generation_id = h.generation_id
        and (r.grade_id = h.grade_id
            or r.code_sha256 = sha256(h.code) and r.grading_hash = h.grading_hash and r.outcome = h.outcome
                and list_sort(r.suspect_reasons) = list_sort(h.suspect_reasons))
    where h.suspect
    group by h.grade_id
)
select
    h.* exclude (passed, points, suspect, outcome),
    case when v.rejected then 'tampering' else h.outcome end as outcome,
    g.identity,
    g.in_plan,
    v.waiting as suspect,
    d.review.decision as decision,
    d.review.reviewer as reviewer,
    d.review.note as review_note,
    d.review.at as decided_at,
    v.verdict_passed,
    case when v.verdict_passed is null then null else v.verdict_passed and not v.waiting end as passed,
    case when v.verdict_passed is null then null when v.waiting or v.rejected then 0.0 else coalesce(h.points, 0.0) end as points,
    case when v.verdict_passed is null then null when v.rejected then 0.0 else coalesce(h.points, 0.0) end as verdict_points
from newest h
join generations_latest g using (generation_id)
left join decided d using (grade_id),
lateral (
    select
        coalesce(h.suspect, false) and d.review is null as waiting,
        coalesce(d.review.decision = 'rejected', false) as rejected,
        -- The prompt that does not fit and the answer that does not end are answers that do not pass.
        case
            when h.outcome = 'not_measured' then null
            when d.review.decision = 'rejected' then false
            when h.passed is null and h.outcome in ('context_overflow', 'time_limit', 'loop_ended') then false
            else h.passed
        end as verdict_passed
) v;
