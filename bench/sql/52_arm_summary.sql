-- One row for each arm of a run and each identity that answered for it; arms that never answered are there with NULLs.
-- Beside every mean stands the number of values it was made of (NULL where a published figure does not say).
--
-- mean_score, ci_low, ci_high: mean over the iterations that have a score, and its t interval (95 %, n - 1 degrees of
-- freedom, exact quantile), cut at 0 and 100; `ci_cut` says whether it was. Near the ceiling a t interval is too narrow
-- (with a standard deviation of 0 it has no width at all): show it, decide by the intervals per level.
create or replace view arm_summary as
with
iterations as materialized (from iteration_scores),
scores as (
    select
        run_id, arm_id, suite_id, identity,
        count(score) as n,
        count(*) as n_iterations,
        avg(score) as mean_score,
        stddev_samp(score) as sd_score,
        min(score) as min_score,
        max(score) as max_score,
        avg(score_with_suspects) as mean_score_with_suspects
    from iterations
    group by run_id, arm_id, suite_id, identity
),
intervals as (
    select
        s.*,
        case when s.n >= 2 then coalesce(t.t975, t975_large(s.n - 1)) * s.sd_score / sqrt(s.n) end as half_width
    from scores s
    left join t_quantiles t on t.df = s.n - 1
),
answers as (
    select
        run_id, arm_id, suite_id, identity,
        count(*) filter (where planned) as n_cells,
        count(passed) filter (where planned) as n_measured,
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
    group by run_id, arm_id, suite_id, identity
),
printed as (
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
    group by run_id, arm_id, suite_id
)
select
    a.run_id, a.arm_id, coalesce(i.suite_id, r.suite_id) as suite_id, i.identity,
    a.status, a.reason, a.title,
    i.mean_score, i.sd_score, i.min_score, i.max_score, coalesce(i.n, 0) as n, coalesce(i.n_iterations, r.iterations) as n_planned,
    i.half_width,
    -- greatest() and least() pass over NULL: one score alone has no interval.
    case when i.half_width is not null then greatest(0.0, i.mean_score - i.half_width) end as ci_low,
    case when i.half_width is not null then least(100.0, i.mean_score + i.half_width) end as ci_high,
    i.mean_score - i.half_width < 0.0 or i.mean_score + i.half_width > 100.0 as ci_cut,
    't, 95 %, n - 1' as ci_method,
    i.mean_score_with_suspects,
    w.n_cells, w.n_measured, w.n_not_measured, w.n_missing, coalesce(w.n_unplanned, 0) as n_unplanned, w.n_passed,
    coalesce(w.n_no_answer, p.n_no_answer) as n_no_answer, w.n_truncated,
    w.n_time_limit, coalesce(w.n_suspect, 0) as n_suspect,
    coalesce(w.decode_tps_mean, p.decode_tps_mean) as decode_tps_mean,
    coalesce(w.decode_tps_sd, p.decode_tps_sd) as decode_tps_sd,
    case when w.decode_tps_mean is null and p.decode_tps_mean is not null then p.decode_tps_n else coalesce(w.decode_tps_n, 0) end
        as decode_tps_n,
    coalesce(w.ttft_ms_mean, p.ttft_ms_mean) as ttft_ms_mean,
    case when w.ttft_ms_mean is null and p.ttft_ms_mean is not null then p.ttft_n else coalesce(w.ttft_n, 0) end as ttft_n,
    w.first_answer_ms_mean, coalesce(w.first_answer_n, 0) as first_answer_n,
    w.prompt_tps_mean, coalesce(w.prompt_tps_n, 0) as prompt_tps_n,
    coalesce(w.n_cached, 0) as n_cached, coalesce(w.n_cache_unknown, 0) as n_cache_unknown,
    w.answer_s_mean, w.answer_s_sd, coalesce(w.answer_s_n, 0) as answer_s_n,
    w.reasoning_tokens_mean, coalesce(w.reasoning_tokens_n, 0) as reasoning_tokens_n,
    w.answer_tokens_mean, coalesce(w.answer_tokens_n, 0) as answer_tokens_n,
    w.draft_accepted_pct, w.prompt_tokens_max,
    a.load_ms, a.model_bytes, a.device, a.vram_baseline_bytes, a.vram_idle_bytes, a.vram_peak_bytes,
    coalesce(a.vram_reason, r.gpu_reason) as vram_reason, a.rss_idle_bytes, a.rss_peak_bytes,
    p.run_id is not null as is_published
from (
    -- Every arm that is named anywhere.
    select * from arms_latest
    union all by name
    select distinct run_id, arm_id from iterations anti join arms_latest using (run_id, arm_id)
) a
left join intervals i using (run_id, arm_id)
left join answers w
    on w.run_id = a.run_id and w.arm_id = a.arm_id and w.suite_id = i.suite_id and w.identity is not distinct from i.identity
left join printed p on p.run_id = a.run_id and p.arm_id = a.arm_id and p.suite_id is not distinct from i.suite_id
left join runs_latest r on r.run_id = a.run_id;
