-- What a published report prints of an arm as a whole: one row for each arm of a run and suite.
create or replace view printed_figures as
select run_id, arm_id, suite_id,
    -- Told apart from wrong answers by whoever looked again, so of any kind of figure.
    try_cast(sum(value) filter (where metric = 'no_answer') as bigint) as n_no_answer,
    max(value) filter (where metric = 'decode_tps_mean') as decode_tps_mean,
    max(value) filter (where metric = 'decode_tps_sd') as decode_tps_sd,
    max(n) filter (where metric = 'decode_tps_mean') as decode_tps_n,
    max(value) filter (where metric = 'ttft_ms') as ttft_ms_mean,
    max(n) filter (where metric = 'ttft_ms') as ttft_n
from published_once
where grade_kind = 'headline' or metric = 'no_answer'
group by run_id, arm_id, suite_id;

-- Every arm of a run that is named anywhere.
create or replace view named_arms as
select run_id, arm_id from arms
union
select distinct run_id, arm_id from plan
union
select distinct run_id, arm_id from generations
union
select distinct run_id, arm_id from published_once where metric = 'score' and grade_kind = 'headline';

-- One row for each arm of a run and each identity that answered for it; arms that never answered are there with NULLs.
-- Beside every mean stands the number of values it was made of (NULL where a published figure does not say).
--
-- mean_score, ci_low, ci_high: mean over the iterations that have a score, and its t interval (95 %, n - 1 degrees of
-- freedom, exact quantile), cut at 0 and 100; `ci_cut` says whether it was. Near the ceiling a t interval is too narrow
-- (with a standard deviation of 0 it has no width at all): show it, decide by the intervals per level.
create or replace view arm_summary as
with
-- Iterations and whole arms in one pass over the cells, since over a large store that is nearly all of the work; and by
-- grouping alone, so that a filter on a run reaches the files.
counted as (
    select
        grouping(iteration) = 0 as of_iteration, run_id, arm_id, suite_id, identity,
        count(*) filter (where planned) as n_cells,
        count(passed) filter (where planned) as n_measured,
        sum(points) filter (where planned) as points,
        sum(verdict_points) filter (where planned) as verdict_points,
        sum(max_points) filter (where planned) as max_points,
        count(*) filter (where planned and gap = 'not measured') as n_not_measured,
        count(*) filter (where planned and gap is not null) as n_missing,
        count(*) filter (where not planned) as n_unplanned,
        count(*) filter (where planned and outcome = 'no_answer') as n_no_answer,
        count(*) filter (where planned and truncated) as n_truncated,
        count(*) filter (where planned and outcome = 'time_limit') as n_time_limit,
        count(*) filter (where planned and suspect) as n_suspect,
        count(*) filter (where planned and passed) as n_passed,
        count(decode_tps) filter (where counts) as decode_tps_n,
        avg(decode_tps) filter (where counts) as decode_tps_mean,
        stddev_samp(decode_tps) filter (where counts) as decode_tps_sd,
        -- Times from the start of the request count only where the prompt cache gave nothing.
        count(first_token_ms) filter (where counts and cache_n = 0) as ttft_n,
        avg(first_token_ms) filter (where counts and cache_n = 0) as ttft_ms_mean,
        count(first_answer_ms) filter (where counts and cache_n = 0) as first_answer_n,
        avg(first_answer_ms) filter (where counts and cache_n = 0) as first_answer_ms_mean,
        count(prompt_tps) filter (where counts and cache_n = 0) as prompt_tps_n,
        avg(prompt_tps) filter (where counts and cache_n = 0) as prompt_tps_mean,
        count(*) filter (where counts and cache_n > 0) as n_cached,
        -- An answer that reached the time limit has no final timings to say it.
        count(*) filter (where counts and cache_n is null and generation_outcome = 'ok') as n_cache_unknown,
        count(answer_s) filter (where counts) as answer_s_n,
        avg(answer_s) filter (where counts) as answer_s_mean,
        stddev_samp(answer_s) filter (where counts) as answer_s_sd,
        count(reasoning_tokens) filter (where counts) as reasoning_tokens_n,
        avg(reasoning_tokens) filter (where counts) as reasoning_tokens_mean,
        count(answer_tokens) filter (where counts) as answer_tokens_n,
        avg(answer_tokens) filter (where counts) as answer_tokens_mean,
        max(prompt_tokens) as prompt_tokens_max,
        case when sum(draft_n) filter (where counts) > 0
            then 100.0 * sum(draft_n_accepted) filter (where counts) / sum(draft_n) filter (where counts) end as draft_accepted_pct
    from (select *, planned and complete as counts from cells)
    group by grouping sets ((run_id, arm_id, suite_id, identity, iteration), (run_id, arm_id, suite_id, identity))
),
scored as (
    select *,
        case when of_iteration then iteration_score(n_cells, n_measured, points, max_points) end as score,
        case when of_iteration then iteration_score(n_cells, n_measured, verdict_points, max_points) end as score_with_suspects
    from counted
    where n_cells > 0 or not of_iteration
    union all by name
    -- Scores that another report printed.
    select true as of_iteration, run_id, arm_id, suite_id, value as score, value as score_with_suspects
    from published_once
    where metric = 'score' and grade_kind = 'headline'
),
arm_figures as (
    select
        run_id, arm_id, suite_id, identity,
        count(score) as n,
        count(*) filter (where of_iteration) as n_iterations,
        avg(score) as mean_score,
        stddev_samp(score) as sd_score,
        min(score) as min_score,
        max(score) as max_score,
        avg(score_with_suspects) as mean_score_with_suspects,
        max(columns(* exclude (run_id, arm_id, suite_id, identity, of_iteration, points, verdict_points, max_points, score,
            score_with_suspects))) filter (where not of_iteration) as '\0'
    from scored
    group by run_id, arm_id, suite_id, identity
    having count(*) filter (where of_iteration) > 0
),
intervals as (
    select
        s.*,
        case when s.n >= 2 then coalesce(t.t975, t975_large(s.n - 1)) * s.sd_score / sqrt(s.n) end as half_width
    from arm_figures s
    left join t_quantiles t on t.df = s.n - 1
)
select
    run_id, arm_id, coalesce(i.suite_id, r.suite_id) as suite_id, i.identity,
    a.status, a.reason, a.title,
    i.mean_score, i.sd_score, i.min_score, i.max_score, coalesce(i.n, 0) as n, coalesce(i.n_iterations, r.iterations) as n_planned,
    i.half_width,
    -- greatest() and least() pass over NULL: one score alone has no interval.
    case when i.half_width is not null then greatest(0.0, i.mean_score - i.half_width) end as ci_low,
    case when i.half_width is not null then least(100.0, i.mean_score + i.half_width) end as ci_high,
    i.mean_score - i.half_width < 0.0 or i.mean_score + i.half_width > 100.0 as ci_cut,
    't, 95 %, n - 1' as ci_method,
    i.mean_score_with_suspects,
    i.n_cells, i.n_measured, i.n_not_measured, i.n_missing, coalesce(i.n_unplanned, 0) as n_unplanned, i.n_passed,
    coalesce(i.n_no_answer, p.n_no_answer) as n_no_answer, i.n_truncated,
    i.n_time_limit, coalesce(i.n_suspect, 0) as n_suspect,
    coalesce(i.decode_tps_mean, p.decode_tps_mean) as decode_tps_mean,
    coalesce(i.decode_tps_sd, p.decode_tps_sd) as decode_tps_sd,
    case when i.decode_tps_mean is null and p.decode_tps_mean is not null then p.decode_tps_n else coalesce(i.decode_tps_n, 0) end
        as decode_tps_n,
    coalesce(i.ttft_ms_mean, p.ttft_ms_mean) as ttft_ms_mean,
    case when i.ttft_ms_mean is null and p.ttft_ms_mean is not null then p.ttft_n else coalesce(i.ttft_n, 0) end as ttft_n,
    i.first_answer_ms_mean, coalesce(i.first_answer_n, 0) as first_answer_n,
    i.prompt_tps_mean, coalesce(i.prompt_tps_n, 0) as prompt_tps_n,
    coalesce(i.n_cached, 0) as n_cached, coalesce(i.n_cache_unknown, 0) as n_cache_unknown,
    i.answer_s_mean, i.answer_s_sd, coalesce(i.answer_s_n, 0) as answer_s_n,
    i.reasoning_tokens_mean, coalesce(i.reasoning_tokens_n, 0) as reasoning_tokens_n,
    i.answer_tokens_mean, coalesce(i.answer_tokens_n, 0) as answer_tokens_n,
    i.draft_accepted_pct, i.prompt_tokens_max,
    a.load_ms, a.model_bytes, a.device, a.vram_baseline_bytes, a.vram_idle_bytes, a.vram_peak_bytes,
    coalesce(a.vram_reason, r.gpu_reason) as vram_reason, a.rss_idle_bytes, a.rss_peak_bytes,
    p.run_id is not null as is_published
from named_arms
left join arms_latest a using (run_id, arm_id)
left join intervals i using (run_id, arm_id)
left join printed_figures p on p.run_id = named_arms.run_id and p.arm_id = named_arms.arm_id and p.suite_id is not distinct from i.suite_id
left join runs_latest r on r.run_id = named_arms.run_id;
