-- Where another tool's published verdict and ours on the same stored answer are not the same, and what made the
-- difference. Ours is the newest grade of kind headline or regrade. One row for each published verdict.
--
-- cause, the first that holds:
--   not_measured         the answer never came, or our sandbox could not grade it
--   suspect              our tests pass, but the code looked into the grader
--   no_answer            the answer is empty; what the reasoning holds is never graded
--   reasoning_graded     the code stored with the published verdict stands in the reasoning and not in the answer
--   answer_unfenced      the answer is code without a fence, while its reasoning has fenced blocks: a tool that searches
--                        for a fence finds a draft
--   extractor_fallback   we found the code by a rule that guesses
--   interface            a name that our tests need is missing
--   extractor            another piece of the answer was graded
--   tests                the same answer under other tests
create or replace view disagreements as
with
-- A generation that is stored twice is one.
generations_once as (
    select * from generations qualify row_number() over (partition by run_id, generation_id order by attempt desc) = 1
),
published_verdicts as (
    select *
    from grades
    where grade_kind = 'published' and passed is not null
    qualify row_number() over (partition by generation_id, code_rule order by graded_at desc, grade_id desc) = 1
),
ours as (
    select *
    from grades
    where grade_kind in ('headline', 'regrade')
    qualify row_number() over (partition by generation_id order by graded_at desc, grade_kind, grade_id desc) = 1
),
pairs as (
    select
        p.run_id, p.arm_id, p.suite_id, p.level_id, p.iteration, p.generation_id,
        p.grade_id as published_grade_id, o.grade_id as grade_id, o.grade_kind,
        p.passed as published_passed, o.passed as passed,
        p.outcome as published_outcome, coalesce(o.outcome, 'not_measured') as outcome,
        p.points as published_points, o.points as points,
        p.tests_passed as published_tests_passed, p.tests_expected as published_tests_expected,
        o.tests_passed, o.tests_expected,
        p.detail as published_detail,
        case when is_complete(g.outcome) then o.detail else g.outcome || coalesce(': ' || g.detail, '') end as detail,
        coalesce(o.suspect, false) as suspect,
        o.code_rule, o.first_failed_test, o.missing_name, o.offered,
        case
            when p.code is null or trim(p.code) = '' then null
            when contains(g.content, trim(p.code, e' \t\r\n')) then 'answer'
            when contains(g.reasoning, trim(p.code, e' \t\r\n')) then 'reasoning'
            else 'neither'
        end as published_code_in,
        p.code is not null and o.code is not null and trim(p.code, e' \t\r\n') = trim(o.code, e' \t\r\n') as same_code,
        contains(coalesce(g.content, ''), '```') as answer_fenced,
        contains(coalesce(g.reasoning, ''), '```') as reasoning_fenced
    from published_verdicts p
    join generations_once g using (run_id, generation_id)
    left join ours o using (generation_id)
    -- An answer that never came has no grade of ours, and is no failure of the model's.
    where (o.grade_id is not null or not is_complete(g.outcome))
        and (o.passed is distinct from p.passed or coalesce(o.suspect, false))
),
explained as (
    select
        *,
        case
            when passed is null then 'not_measured'
            when suspect and passed then 'suspect'
            when outcome = 'no_answer' then 'no_answer'
            when published_code_in = 'reasoning' then 'reasoning_graded'
            when not answer_fenced and reasoning_fenced then 'answer_unfenced'
            when code_rule in (select rule from fallback_rules) then 'extractor_fallback'
            when outcome = 'interface' then 'interface'
            when published_code_in is not null and not same_code then 'extractor'
            else 'tests'
        end as cause
    from pairs
    where passed is distinct from published_passed or (suspect and passed)
)
select
    run_id, arm_id, suite_id, level_id, iteration, generation_id, published_grade_id, grade_id, grade_kind,
    published_outcome, outcome, published_passed, passed, suspect, published_points, points, cause, code_rule,
    case cause
        when 'not_measured' then 'it says nothing about the model and is not measured: ' || coalesce(detail, 'no reason')
        when 'suspect' then 'the tests pass, but the verdict is suspect and waits for a person'
        when 'no_answer' then 'the answer is empty; code in the reasoning is never graded'
        when 'reasoning_graded' then 'the code stored with the published verdict stands in the reasoning, not in the answer; ours is of the answer (rule '
            || code_rule || ')'
        when 'answer_unfenced' then 'the answer is code without a fence (rule ' || code_rule
            || '); its reasoning has fenced drafts, which only a search outside of the answer can find'
        when 'extractor_fallback' then 'the code was found by a rule that guesses (' || code_rule || ')'
        when 'interface' then 'our tests need ' || coalesce(missing_name, 'a name') || '; offered instead: '
            || coalesce(nullif(array_to_string(offered, ', '), ''), 'nothing')
        when 'extractor' then 'another piece of the answer was graded (our rule: ' || code_rule || ')'
        else case
            when passed then coalesce('all ' || tests_expected || ' of ', 'all of ') || 'our tests pass; published: '
                || coalesce(published_detail, 'failed')
            else 'our test ' || coalesce(first_failed_test, '?') || ' fails'
        end || coalesce(' (published tests: ' || published_tests_passed || ' of ' || published_tests_expected || ')', '')
    end
    || case when not passed and cause <> 'not_measured' and detail is not null then ': ' || detail else '' end as why,
    published_detail, detail, first_failed_test, missing_name, published_code_in,
    published_tests_passed, published_tests_expected, tests_passed, tests_expected
from explained;
