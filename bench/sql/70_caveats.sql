-- Caveats that a report writes by itself. Each rule fires from the data; `source` names the view to look into. The
-- thresholds are in the table `rule_settings`. `level`: 'error' (figures are wrong or cannot be compared), 'warning'
-- (figures may mislead), 'note'. arm_id is NULL where the whole run is meant.
create or replace view caveats as
with
-- Each view once, however many rules look at it.
summary as materialized (from arm_summary),
all_cells as materialized (from cells),
run_rows as materialized (from runs_latest),
arm_rows as materialized (from arms_latest),
gaps_found as materialized (from missing),
setting as (
    select
        max(value) filter (where name = 'min_iterations') as min_iterations,
        max(value) filter (where name = 'context_margin') as context_margin
    from rule_settings
),
run_arms as (
    select a.*, r.max_tokens from arm_rows a join run_rows r using (run_id)
),
per_level as (
    select run_id, suite_id, level_id, count(*) as n_arms,
        bool_and(k = n) as all_pass, bool_and(k = 0) as all_fail
    from level_pass_rates
    where n > 0
    group by run_id, suite_id, level_id
),
-- Rules of the run ---------------------------------------------------------------------------------------------------
run_state as (
    select run_id, null::varchar as arm_id, 'run_not_finished' as rule, 'warning' as level,
        'the run is ' || status || coalesce(': ' || reason, '') || '; its figures are of what was done so far' as text,
        'runs_latest' as source
    from run_rows
    where status <> 'finished'
),
imported as (
    select run_id, null, 'imported', 'warning', 'figures taken from ' || origin || ', not measured by this bench', 'runs_latest'
    from run_rows
    where coalesce(origin, 'bench') <> 'bench'
),
published_only as (
    select run_id, null, 'published', 'warning',
        'scores and pass counts as printed in ' || string_agg(distinct source, '; ' order by source)
            || '; there are no answers behind them in this store', 'published'
    from published
    -- Imported answers bring figures of their source too, but those stand beside our verdicts.
    where run_id not in (select run_id from generations)
    group by run_id
),
unsafe as (
    select run_id, null, 'unsafe_grading', 'warning',
        'answers were graded without a sandbox (provider unsafe): code of a model ran with the rights of the user',
        'runs_latest'
    from run_rows
    where grading_provider = 'unsafe'
),
dirty as (
    select run_id, null, 'changed_bench', 'note',
        'the bench itself had changes that are not committed (' || bench_commit || ')', 'runs_latest'
    from run_rows
    where bench_commit like '%dirty%'
),
mixed as (
    select run_id, null, 'mixed_identity', 'error',
        aspect || ' is not the same for all arms: '
            || array_to_string([x.arm_id || ' ' || coalesce(x.value, 'not known') for x in arm_values], '; ')
            || '; do not compare them', 'comparability'
    from comparability
),
samplers as (
    select run_id, null, 'different_samplers', 'warning',
        'samplers differ between arms (' || string_agg(distinct sampler_id, ', ' order by sampler_id)
            || '): differences in score and speed are of arm and sampler together', 'arms_latest'
    from arm_rows
    group by run_id
    having count(distinct sampler_asked) > 1
),
saturated as (
    select run_id, null, 'saturated_levels', case when count(*) filter (where all_pass or all_fail) = count(*) then 'warning' else 'note' end,
        count(*) filter (where all_pass or all_fail) || ' of ' || count(*) || ' levels do not tell the arms apart: '
            || concat_ws('; ',
                'every arm always passed ' || string_agg(level_id, ', ' order by level_id) filter (where all_pass),
                'no arm ever passed ' || string_agg(level_id, ', ' order by level_id) filter (where all_fail)),
        'level_pass_rates'
    from per_level
    where n_arms > 1
    group by run_id
    having count(*) filter (where all_pass or all_fail) > 0
),
few as (
    select run_id, null, 'few_iterations', 'warning',
        min(n_planned) || case when min(n_planned) = 1 then ' iteration' else ' iterations' end || ' an arm: intervals are wide, and small differences cannot be told from chance', 'arm_summary'
    from summary, setting
    where n_planned < setting.min_iterations
    group by run_id
),
one_run as (
    select run_id, null, 'no_gpu', 'note', 'VRAM was not measured: ' || gpu_reason, 'runs_latest'
    from run_rows
    where gpu_name is null and gpu_reason is not null
),
impossible as (
    select run_id, arm_id, 'impossible_times', 'error',
        count(*) || ' answers have a time that cannot be (negative, no number, or years); it is left out', 'generations'
    from generations
    where greatest(first_token_ms, first_answer_ms, last_token_ms, total_ms, predicted_ms, prompt_ms) >= 1e12
        or least(first_token_ms, first_answer_ms, last_token_ms, total_ms, predicted_ms, prompt_ms) < 0
    group by run_id, arm_id
),
conflicting as (
    select run_id, arm_id, 'conflicting_rows', 'error',
        count(*) || ' answers are stored more than once with different contents; one of them was taken', 'generations'
    from (
        select run_id, arm_id, generation_id
        from generations
        -- The texts of those alone that are stored more than once.
        join (select run_id, arm_id, generation_id from generations group by all having count(*) > 1) doubled
            using (run_id, arm_id, generation_id)
        group by all
        having count(distinct (content, reasoning, outcome, predicted_n, predicted_ms, total_ms)) > 1
    )
    group by run_id, arm_id
),
not_printed as (
    select run_id, arm_id, 'impossible_figures', 'error',
        count(*) || ' printed numbers of passes are none (expected 0 to the number of answers); they are left out', 'published'
    from published_once
    where metric = 'level_passed' and not coalesce(value between 0 and coalesce(n, 1e9) and value = floor(value), false)
    group by run_id, arm_id
),
-- Rules of an arm ------------------------------------------------------------------------------------------------------
failed_arms as (
    select run_id, arm_id, 'failed_arm', 'error', 'the arm ' || case when status = 'failed' then 'failed' else 'is ' || status end
        || coalesce(': ' || reason, '') || coalesce(' (' || detail || ')', ''), 'arms_latest'
    from arm_rows
    where status in ('failed', 'interrupted')
),
gaps as (
    select m.run_id, m.arm_id, 'missing_rows', 'warning',
        count(*) || ' of ' || any_value(s.n_cells) || ' planned answers have no verdict ('
            || string_agg(distinct m.kind || coalesce(': ' || m.reason, ''), '; ') || ')', 'missing'
    from gaps_found m
    join summary s on s.run_id = m.run_id and s.arm_id = m.arm_id and s.identity is not distinct from m.identity
    where not m.is_error
    group by m.run_id, m.arm_id, m.identity
),
unplanned as (
    select run_id, arm_id, 'unplanned_rows', 'error',
        count(*) || ' answers that the plan does not hold; they are left out', 'missing'
    from gaps_found
    where is_error
    group by run_id, arm_id
),
fewer as (
    select run_id, arm_id, 'fewer_iterations_than_planned', 'warning',
        'the score rests on ' || n || ' of ' || n_planned || ' planned iterations', 'arm_summary'
    from summary
    where n < n_planned and n_measured > 0
),
context as (
    select a.run_id, a.arm_id, 'small_context', 'warning',
        'context ' || a.context || ' against ' || a.max_tokens || ' answer tokens'
            || case when s.prompt_tokens_max is null then '' else ' and prompts of up to ' || s.prompt_tokens_max end
            || case when a.context < a.max_tokens + coalesce(s.prompt_tokens_max, 1)
                then ': a long answer does not fit' else ': a long answer hardly fits' end, 'arms_latest'
    from run_arms a
    left join (select run_id, arm_id, max(prompt_tokens_max) as prompt_tokens_max from summary group by all) s using (run_id, arm_id),
    setting
    where a.context < (a.max_tokens + coalesce(s.prompt_tokens_max, 0)) * (1 + setting.context_margin)
),
telemetry_gaps as (
    select run_id, arm_id, 'missing_telemetry', 'warning',
        array_to_string(list_filter([
            case when device = 'gpu' and vram_idle_bytes is null then 'VRAM after the load' end,
            case when device = 'gpu' and vram_peak_bytes is null then 'highest VRAM' end,
            case when rss_peak_bytes is null then 'memory of the server' end,
            case when load_ms is null then 'load time' end,
            case when decode_tps_mean is null then 'decode rate' end,
            case when ttft_ms_mean is null then 'time to the first token' end], lambda x: x is not null), ', ')
            || ' not measured' || case when vram_reason is not null and device = 'gpu' then ' (' || vram_reason || ')' else '' end,
        'arm_summary'
    from summary
    where (n_measured > 0 or is_published)
        and (rss_peak_bytes is null or load_ms is null or decode_tps_mean is null or ttft_ms_mean is null
            or device = 'gpu' and (vram_idle_bytes is null or vram_peak_bytes is null))
),
busy as (
    select run_id, arm_id, 'host_busy', 'warning', 'the host was busy while the arm ran: ' || host_busy, 'arms_latest'
    from arm_rows
    where host_busy is not null
),
unlocked as (
    select run_id, arm_id, 'model_not_locked', 'note',
        'size and checksum of the model file were not fixed before the run' || coalesce('; it was ' || substr(model_sha256, 1, 12), ''), 'arms_latest'
    from arm_rows
    where model_locked is not true and status <> 'planned'
),
fallback as (
    select run_id, arm_id, 'code_by_fallback', 'warning',
        count(*) || ' of ' || any_value(n_all) || ' graded pieces of code were found by a fallback rule ('
            || string_agg(distinct code_rule, ', ' order by code_rule) || '), '
            || count(*) filter (where not passed) || ' of them failed', 'grades_latest'
    from (select *, count(*) over (partition by run_id, arm_id) as n_all from all_cells where planned and measured) c
    where code_rule is not null and code_rule in (select rule from fallback_rules)
    group by run_id, arm_id
),
cached as (
    select run_id, arm_id, 'prompt_cache_used', 'warning',
        concat_ws(' and ',
            case when n_cached > 0 then n_cached || ' with prompt tokens from the cache' end,
            case when n_cache_unknown > 0 then n_cache_unknown || ' for which the server does not say' end)
            || ' among ' || n_cells || ' answers; they are left out of first-token times and prompt speed', 'generations_latest'
    from summary
    where n_cached > 0 or n_cache_unknown > 0
),
suspects as (
    select run_id, arm_id, 'suspects', 'warning',
        n_suspect || ' verdicts are suspect and wait for a person (invoke review); counted as failed the mean is '
            || coalesce(format('{:.2f}', mean_score), 'n/a') || ', as the tests say '
            || coalesce(format('{:.2f}', mean_score_with_suspects), 'n/a'), 'grades_latest'
    from summary
    where n_suspect > 0
),
adopted as (
    select run_id, arm_id, 'regrade_adopted', 'note', count(*) || ' verdicts are of a regrade that was adopted', 'grades_latest'
    from all_cells
    where planned and adopted_from is not null
    group by run_id, arm_id
),
never_came as (
    select run_id, arm_id, 'answers_never_came', 'warning',
        'among ' || n_cells || ' answers: ' || concat_ws(', ',
            case when n_no_answer > 0 then n_no_answer || ' empty' end,
            case when n_time_limit > 0 then n_time_limit || ' not ended within the time limit' end,
            case when n_truncated > 0 then n_truncated || ' cut at the token limit' end)
            || '; not passed, unless the code was whole', 'arm_summary'
    from summary
    where n_no_answer > 0 or n_time_limit > 0 or n_truncated > 0
),
slots_shared as (
    select run_id, null, 'slots', 'note',
        json_extract_string(settings, '$.slots') || ' questions were asked at a time: speeds come from the probe alone, '
            || 'and texts may differ from those of one at a time (numerics of a batch)', 'runs_latest'
    from run_rows
    where json_valid(settings) and coalesce(try_cast(json_extract_string(settings, '$.slots') as integer), 1) > 1
),
looping as (
    select g.run_id, g.arm_id, 'repetition_loops', 'note',
        count(*) || ' answers end in a repetition loop; ' || case when count(*) filter (where g.outcome = 'loop_ended') = 0
            then 'they ran to their own end and count as they are'
            else count(*) filter (where g.outcome = 'loop_ended')
                || ' of them were ended early, as the preset allows: not passed, and without speed and length' end, 'generations_latest'
    from generations_latest g
    where g.loop is not null and g.in_plan is not false
    group by g.run_id, g.arm_id
),
flat as (
    select run_id, arm_id, 'no_spread', 'note',
        'all ' || n || ' scores are ' || format('{:.1f}', mean_score) || ': the t interval has no width, which is no certainty', 'arm_summary'
    from summary
    where n >= 2 and sd_score = 0
)
from run_state
union all from imported
union all from published_only
union all from unsafe
union all from dirty
union all from mixed
union all from samplers
union all from saturated
union all from few
union all from one_run
union all from failed_arms
union all from gaps
union all from unplanned
union all from fewer
union all from context
union all from telemetry_gaps
union all from busy
union all from unlocked
union all from fallback
union all from cached
union all from suspects
union all from adopted
union all from never_came
union all from impossible
union all from conflicting
union all from not_printed
union all from slots_shared
union all from looping
union all from flat
union all from probe_caveats;
