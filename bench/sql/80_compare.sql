-- Two runs side by side, for two builds, two machines, or the same thing on another day. Every figure is of run b
-- against run a, and both orders are there: ask with `where run_a = '...' and run_b = '...'`.

-- What a run and its arms were, one row a value. arm_id is NULL for what the whole run shares; an arm that several
-- servers answered for has its values joined. `kind` says what a difference means:
--   question   prompt, tests or model: scores of different questions or models are no comparison
--   server     build, image, binary, engine
--   machine    GPU, driver, CPU, host
--   settings   what the arm's preset and the run chose: sampler, context, slots, iterations
--   draw       the seed
create or replace view run_aspects as
with
of_runs as (
    select run_id, null::varchar as arm_id, unnest([
        {'kind': 'machine', 'aspect': 'host', 'value': host},
        {'kind': 'machine', 'aspect': 'operating system', 'value': os},
        {'kind': 'machine', 'aspect': 'CPU', 'value': cpu_model},
        {'kind': 'machine', 'aspect': 'cores', 'value': cpu_cores::varchar},
        {'kind': 'settings', 'aspect': 'lineup', 'value': lineup_id},
        {'kind': 'settings', 'aspect': 'iterations', 'value': iterations::varchar},
        {'kind': 'settings', 'aspect': 'questions at a time', 'value': case when json_valid(settings) then json_extract_string(settings, '$.slots') end},
        {'kind': 'settings', 'aspect': 'time limit of a request, s', 'value': request_limit_s::varchar},
        {'kind': 'settings', 'aspect': 'grading sandbox', 'value': grading_provider},
        {'kind': 'settings', 'aspect': 'gguf-bench', 'value': nullif(concat_ws(' ', bench_version, bench_commit), '')},
        {'kind': 'draw', 'aspect': 'seed', 'value': seed::varchar}
    ], recursive := true)
    from runs_latest
),
of_servers as (
    select run_id, arm_id, unnest([
        {'kind': 'question', 'aspect': 'model sha256', 'value': model_sha256},
        {'kind': 'server', 'aspect': 'engine', 'value': engine},
        {'kind': 'server', 'aspect': 'llama.cpp build', 'value': build::varchar},
        {'kind': 'server', 'aspect': 'llama.cpp commit', 'value': commit},
        {'kind': 'server', 'aspect': 'image', 'value': image_digest},
        {'kind': 'server', 'aspect': 'server binary', 'value': binary_sha256},
        {'kind': 'machine', 'aspect': 'GPU', 'value': gpu_name},
        {'kind': 'machine', 'aspect': 'driver', 'value': gpu_driver},
        {'kind': 'settings', 'aspect': 'preset hash', 'value': preset_hash}
    ], recursive := true)
    from identities
),
of_arms as (
    select run_id, arm_id, unnest([
        {'kind': 'server', 'aspect': 'wheel', 'value': wheel},
        {'kind': 'settings', 'aspect': 'sampler', 'value': coalesce(sampler_in_force, sampler_asked)},
        {'kind': 'settings', 'aspect': 'context', 'value': context::varchar},
        {'kind': 'settings', 'aspect': 'KV cache', 'value': nullif(concat_ws('/', kv_k, kv_v), '')},
        {'kind': 'settings', 'aspect': 'slots', 'value': slots::varchar},
        {'kind': 'settings', 'aspect': 'threads', 'value': threads::varchar},
        {'kind': 'settings', 'aspect': 'device', 'value': device},
        {'kind': 'settings', 'aspect': 'chat template', 'value': chat_template_sha256}
    ], recursive := true)
    from arms_latest
),
of_levels as (
    select distinct run_id, arm_id, 'question' as kind, 'prompt of ' || level_id as aspect, prompt_hash as value
    from cells where generation_id is not null
    union
    select distinct run_id, arm_id, 'question', 'grading of ' || level_id, grading_hash
    from cells where grade_id is not null
)
select run_id, arm_id, kind, aspect, string_agg(distinct value, ', ' order by value) as value
from (from of_runs union all by name from of_servers union all by name from of_arms union all by name from of_levels)
group by run_id, arm_id, kind, aspect;

-- What two runs differ in, for the runs themselves and for each arm that both have. Not recorded on one side counts as a
-- difference; recorded on neither does not.
create or replace view run_differences as
select a.run_id as run_a, b.run_id as run_b, a.arm_id, a.kind, a.aspect, a.value as value_a, b.value as value_b
from run_aspects a
join run_aspects b on b.run_id <> a.run_id and b.aspect = a.aspect and b.arm_id is not distinct from a.arm_id
where a.value is distinct from b.value;

-- Each arm that two runs have, in the same suite. Its score in b less that in a, with the interval of `pairwise` (exact
-- for each level, combined by MOVER, at least Hoeffding's where iterations are few); the level is divided by n_compared,
-- the arms of this pair of runs (Bonferroni), so that all their verdicts together are wrong at most as often as alpha.
-- verdict, of b against a:
--   better | worse   the interval excludes zero
--   within margin    it does not, and lies inside the margin (rule_settings)
--   not separated    neither
-- `differs_in` names prompts, tests, or models that differ: verdict is NULL then, and mixed_verdict is what it would be.
-- NULL too, with a `reason`, where a level was never measured or a run stopped by its results. `robust`: the verdict is
-- the same with the failures of `harness_doubt` as passes for a, for b, for both and for none.
-- n_shared: answers of both runs with the same request seed and the same identity. They are one question put twice, and
-- no new evidence.
-- decode_* (tokens per second) and answer_* (seconds to the answer): b less a, Welch's t interval at the same level.
create or replace view compared_runs as
with
known as materialized (from level_limits),
sides as materialized (
    select s.*, i.score, i.holds
    from arm_summary s
    left join arm_intervals i
        on i.run_id = s.run_id and i.arm_id = s.arm_id and i.suite_id = s.suite_id and i.identity is not distinct from s.identity
    where s.n_measured > 0 or s.is_published
),
pairs as materialized (
    select a.run_id as run_a, b.run_id as run_b, a.suite_id, a.arm_id, a as a, b as b,
        count(*) over (partition by a.run_id, b.run_id, a.suite_id) as n_compared
    from sides a
    join sides b on b.run_id <> a.run_id and b.suite_id = a.suite_id and b.arm_id = a.arm_id
),
differing as (
    select run_a, run_b, arm_id, string_agg(aspect, ', ' order by aspect) as aspects
    from run_differences
    where kind = 'question'
    group by run_a, run_b, arm_id
),
shared as (
    select x.run_id as run_a, y.run_id as run_b, x.suite_id, x.arm_id, x.identity, count(*) as n
    from cells x
    join cells y on y.run_id <> x.run_id and y.suite_id = x.suite_id and y.arm_id = x.arm_id and y.identity = x.identity
        and y.level_id = x.level_id and y.request_seed = x.request_seed and y.prompt_hash is not distinct from x.prompt_hash
    where x.planned and y.planned and x.generation_id is not null and y.generation_id is not null
    group by all
),
scenarios as materialized (
    select
        p.run_a, p.run_b, p.suite_id, p.arm_id, p.a.identity as identity_a, p.b.identity as identity_b, p.n_compared,
        p.a.holds and p.b.holds as holds, x.level_id, x.doubtful as doubtful_a, y.doubtful as doubtful_b,
        x.k as k_a, x.n as n_a, x.share as share_a, x.rate as rate_a, x.n_levels as levels_a,
        y.k as k_b, y.n as n_b, y.share as share_b, y.rate as rate_b, y.n_levels as levels_b,
        x.alpha / p.n_compared as error
    from pairs p
    join known x on x.run_id = p.run_a and x.suite_id = p.suite_id and x.arm_id = p.arm_id
        and x.identity is not distinct from p.a.identity
    join known y on y.run_id = p.run_b and y.suite_id = p.suite_id and y.arm_id = p.arm_id
        and y.identity is not distinct from p.b.identity and y.level_id = x.level_id
),
limits as (
    select *, clopper_pearson_low(k, n, error) as low, clopper_pearson_high(k, n, error) as high
    from (
        select run_a, run_b, k_a as k, n_a as n, error from scenarios
        union
        select run_a, run_b, k_b, n_b, error from scenarios
    )
),
summed as (
    select
        s.run_a, s.run_b, s.suite_id, s.arm_id, s.identity_a, s.identity_b, s.n_compared, s.holds, s.doubtful_a, s.doubtful_b,
        count(rate_b - rate_a) = max(levels_a) and max(levels_a) = max(levels_b) and count(*) = count(share_a)
            and bool_and(abs(share_a - share_b) < 1e-9) as complete,
        min(n_a) as n_a, min(n_b) as n_b,
        100 * sum(share_b * rate_b - share_a * rate_a) as difference,
        100 * sqrt(sum(pow(share_b * (rate_b - y.low), 2) + pow(share_a * (x.high - rate_a), 2))) as mover_below,
        100 * sqrt(sum(pow(share_b * (y.high - rate_b), 2) + pow(share_a * (rate_a - x.low), 2))) as mover_above,
        max(ln(2 / s.error)) as log_error,
        100 * sqrt(log_error / 2 * sum(case when s.n_a > 0 and s.n_b > 0
            then share_a * share_a / s.n_a + share_b * share_b / s.n_b end)) as hoeffding,
        least(min(s.n_a), min(s.n_b)) < pow(log_error, 2) / 4 as few,
        case when few then greatest(mover_below, hoeffding) else mover_below end as below,
        case when few then greatest(mover_above, hoeffding) else mover_above end as above
    from scenarios s
    left join limits x on x.run_a = s.run_a and x.run_b = s.run_b and x.k = s.k_a and x.n = s.n_a and x.error = s.error
    left join limits y on y.run_a = s.run_a and y.run_b = s.run_b and y.k = s.k_b and y.n = s.n_b and y.error = s.error
    group by all
),
judged as (
    select *,
        case
            when not complete or not holds then null
            when difference - below > 0 then 'better'
            when difference + above < 0 then 'worse'
            when difference - below >= -points and difference + above <= points then 'within margin'
            else 'not separated'
        end as verdict
    from summed, (select max(value) as points from rule_settings where name = 'margin')
),
scored as (
    select run_a, run_b, suite_id, arm_id, identity_a, identity_b,
        max({'n_a': n_a, 'n_b': n_b, 'complete': complete, 'difference': difference,
            'low': greatest(-100.0, difference - below), 'high': least(100.0, difference + above), 'verdict': verdict})
            filter (where not doubtful_a and not doubtful_b) as s,
        count(distinct verdict) = 1 as robust
    from judged
    group by all
),
speeds as (
    select *,
        difference_of(b.decode_tps_mean, a.decode_tps_mean) as decode_difference,
        difference_of(b.answer_s_mean, a.answer_s_mean) as answer_difference,
        -- Where a printed figure does not give its n, the number of the arm's scores is taken.
        coalesce(a.decode_tps_n, a.n) as dn_a, coalesce(b.decode_tps_n, b.n) as dn_b,
        case when dn_a > 1 and dn_b > 1 then pow(a.decode_tps_sd, 2) / dn_a end as dv_a,
        case when dn_a > 1 and dn_b > 1 then pow(b.decode_tps_sd, 2) / dn_b end as dv_b,
        case when a.answer_s_n > 1 and b.answer_s_n > 1 then pow(a.answer_s_sd, 2) / a.answer_s_n end as av_a,
        case when a.answer_s_n > 1 and b.answer_s_n > 1 then pow(b.answer_s_sd, 2) / b.answer_s_n end as av_b
    from pairs
),
widths as (
    select *,
        case when dv_a + dv_b = 0 then 0.0 else sqrt(dv_a + dv_b) * t_for_pairs(n_compared,
            pow(dv_a + dv_b, 2) / (pow(dv_a, 2) / (dn_a - 1) + pow(dv_b, 2) / (dn_b - 1))) end as decode_half,
        case when av_a + av_b = 0 then 0.0 else sqrt(av_a + av_b) * t_for_pairs(n_compared,
            pow(av_a + av_b, 2) / (pow(av_a, 2) / (a.answer_s_n - 1) + pow(av_b, 2) / (b.answer_s_n - 1))) end as answer_half
    from speeds
)
select
    w.run_a, w.run_b, w.suite_id, w.arm_id, w.a.identity as identity_a, w.b.identity as identity_b, w.n_compared,
    coalesce(w.a.score, w.a.mean_score) as score_a, coalesce(w.b.score, w.b.mean_score) as score_b,
    c.s.n_a as n_a, c.s.n_b as n_b,
    case when c.s.complete then c.s.difference end as difference,
    case when c.s.complete and w.a.holds and w.b.holds then c.s.low end as low,
    case when c.s.complete and w.a.holds and w.b.holds then c.s.high end as high,
    case when d.aspects is null then c.s.verdict end as verdict,
    c.s.verdict as mixed_verdict,
    case when c.s.verdict is not null then c.robust end as robust,
    d.aspects as differs_in,
    case
        when d.aspects is not null then 'they differ in ' || d.aspects
        when c.s is null then 'no counts of passes by level'
        when not c.s.complete then 'the levels or their points are not the same, or one was never measured'
        when not (w.a.holds and w.b.holds) then 'a run that stopped by its results has no interval for a fixed number of iterations'
    end as reason,
    coalesce(h.n, 0) as n_shared,
    w.a.decode_tps_mean as decode_a, w.b.decode_tps_mean as decode_b,
    w.decode_difference, w.decode_difference - w.decode_half as decode_low, w.decode_difference + w.decode_half as decode_high,
    w.a.answer_s_mean as answer_a, w.b.answer_s_mean as answer_b,
    w.answer_difference, w.answer_difference - w.answer_half as answer_low, w.answer_difference + w.answer_half as answer_high
from widths w
left join scored c on c.run_a = w.run_a and c.run_b = w.run_b and c.suite_id = w.suite_id and c.arm_id = w.arm_id
    and c.identity_a is not distinct from w.a.identity and c.identity_b is not distinct from w.b.identity
left join differing d on d.run_a = w.run_a and d.run_b = w.run_b and d.arm_id = w.arm_id
left join shared h on h.run_a = w.run_a and h.run_b = w.run_b and h.suite_id = w.suite_id and h.arm_id = w.arm_id
    and h.identity = w.a.identity and h.identity = w.b.identity;
