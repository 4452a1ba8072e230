-- One row for each planned request and each identity that answered for its arm: what came of it, without the texts.
-- Every statistic starts here. An arm that never answered has its planned requests once, without an identity. A run
-- without a plan (imported) counts what it holds.
create or replace view cells as
with
-- Runs that asked several questions at a time.
shared as (
    select distinct run_id from runs
    where json_valid(settings) and coalesce(try_cast(json_extract_string(settings, '$.slots') as integer), 1) > 1
),
answered as (
    select
        run_id, arm_id, suite_id, level_id, iteration, identity, in_plan, generation_id, attempt, complete, outcome, detail,
        finish_reason, prompt_hash, request_seed, prompt_tokens, completion_tokens, reasoning_tokens, answer_tokens, cache_n,
        draft_n, draft_n_accepted, started_at, elapsed(coalesce(last_token_ms, total_ms)) as took_ms,
        -- With several questions at a time each slows the others: then only the single-stream probe tells the speed.
        case when alone then decode_rate(predicted_n, elapsed(predicted_ms)) end as decode_tps,
        case when alone then prompt_rate(prompt_n, elapsed(prompt_ms)) end as prompt_tps,
        case when alone then elapsed(first_token_ms) end as first_token_ms,
        case when alone then elapsed(first_answer_ms) end as first_answer_ms,
        case when alone then elapsed(coalesce(last_token_ms, total_ms)) / 1000.0 end as answer_s
    from (select *, run_id not in (select run_id from shared) as alone from generations_latest)
),
-- What `--until decided` made unnecessary is planned no more: it is no gap.
stopped as (
    select run_id, arm_id, max(iterations) as iterations from decisions group by run_id, arm_id
),
identities as (
    select distinct run_id, arm_id, identity from answered
),
slots as (
    select p.run_id, p.arm_id, p.suite_id, p.level_id, p.iteration, p.level_index, p.points::double as max_points,
        p.prompt_hash, p.grading_hash, i.identity
    from plan_latest p
    left join identities i using (run_id, arm_id)
    left join stopped d using (run_id, arm_id)
    where d.iterations is null or p.iteration <= d.iterations
),
joined as (
    select
        s.run_id, s.arm_id, s.suite_id, s.level_id, s.iteration, s.identity, s.level_index, s.max_points, s.prompt_hash,
        s.grading_hash as planned_grading_hash, true as planned,
        a.* exclude (run_id, arm_id, suite_id, level_id, iteration, identity, in_plan, prompt_hash)
    from slots s
    left join answered a
        on a.run_id = s.run_id and a.arm_id = s.arm_id and a.suite_id = s.suite_id and a.level_id = s.level_id
        and a.iteration = s.iteration and a.identity = s.identity and a.in_plan
    union all by name
    select * exclude (in_plan), in_plan is null as planned
    from answered
    where in_plan is not true
)
select
    j.* exclude (outcome, detail, max_points),
    coalesce(j.max_points, h.max_points) as max_points,
    j.outcome as generation_outcome,
    j.detail as generation_detail,
    h.grade_id, h.outcome, h.passed, h.points, h.verdict_passed, h.verdict_points,
    h.passed is not null as measured,
    coalesce(h.suspect, false) as suspect,
    h.truncated, h.code_rule, h.provider, h.grading_hash, h.adopted_from,
    case
        when h.passed is not null then null
        when j.generation_id is null then 'not asked'
        when not j.complete then 'not measured'
        when h.grade_id is null then 'not graded'
        else 'not measured'
    end as gap,
    case
        when h.passed is not null then null
        when j.generation_id is null then 'no answer was asked for'
        when not j.complete then j.outcome || coalesce(': ' || j.detail, '')
        else h.detail
    end as gap_reason
from joined j
left join headline_grades h using (run_id, generation_id);
