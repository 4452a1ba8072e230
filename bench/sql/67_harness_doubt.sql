-- Failures that may be the bench's doing and not the model's, one row an arm, level and cause. `n` of them would pass if
-- the bench is to blame. Each failure has one cause, the first that holds:
--   regraded           another verdict on the same answer (published, or a regrade) is that it passes
--   suspect            the tests pass, the verdict is suspect, and no person has decided
--   context_overflow   the prompt or the answer did not fit into the context that the server was given
--   no_code            no code was found in an answer
--   interface          a name that the tests need is missing: the prompt may not ask for it
--   fallback_rule      the code was found by a rule that guesses (table fallback_rules)
-- What a person rejected is no doubt. For printed figures, the passes that another printed count has more.
create or replace view harness_doubt as
with passed_elsewhere as (
    select distinct generation_id
    from (
        select generation_id, passed
        from grades
        where grade_kind in ('published', 'regrade') and passed is not null
        qualify row_number() over (partition by generation_id, grade_kind order by graded_at desc, grade_id desc) = 1
    )
    where passed
),
caused as (
    select
        c.run_id, c.arm_id, c.suite_id, c.identity, c.level_id,
        case
            when p.generation_id is not null then 'regraded'
            when c.suspect and c.verdict_passed then 'suspect'
            when 'context_overflow' in (c.outcome, coalesce(c.generation_outcome, '')) then 'context_overflow'
            when c.outcome in ('no_code', 'interface') then c.outcome
            when c.code_rule in (select rule from fallback_rules) then 'fallback_rule'
        end as cause
    from cells c
    left join passed_elsewhere p using (generation_id)
    where c.planned and c.measured and not c.passed and c.outcome <> 'tampering'
),
printed as (
    select
        h.run_id, h.arm_id, h.suite_id, null::varchar as identity, h.level_id, 'regraded' as cause,
        try_cast(max(o.value - h.value) as bigint) as n
    from published_once h
    join published_once o using (run_id, arm_id, suite_id, level_id, metric, n)
    where metric = 'level_passed' and h.grade_kind = 'headline' and o.grade_kind <> 'headline' and o.value > h.value and o.value <= o.n and h.value >= 0
    group by h.run_id, h.arm_id, h.suite_id, h.level_id
)
select run_id, arm_id, suite_id, identity, level_id, cause, count(*) as n
from caused
where cause is not null
group by all
union all by name
from printed;
