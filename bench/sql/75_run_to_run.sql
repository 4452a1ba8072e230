-- Both numbers of a level of an arm in one: joined by two of them, every level meets every other in some orders of the
-- joins, and nothing tells the optimizer how few levels an arm has.
create or replace macro one_key(arm, number) as (arm::bigint << 24) + number;

-- The same arm in several runs: one row for each run and each earlier run (run_id sorts by time) in which an arm of the
-- same identity answered the same suite. Differences are of the run less the earlier one.
--
-- score_low, score_high: points of 100, from the levels' exact intervals combined as in pairwise, at alpha for this one
-- pair (rule_settings; not adjusted for the number of runs), and below ln(2 / alpha)^2 / 4 iterations at least as wide as
-- Hoeffding's. decode_low, decode_high: tokens per second, Welch's t interval (B. L. Welch, "The generalization of
-- 'Student's' problem when several different population variances are involved", Biometrika 34, 1947), degrees of
-- freedom rounded down. `within_noise`: true when zero is inside both, false when it is outside of one, NULL when that
-- cannot be said; `reason` tells why an interval is missing.
--
-- `seeds` says whether the two are two results at all: 'other' (no request seed in common), 'same', or 'partly the same'
-- (n_same_seeds of n_seeds). Answers to the same seeds are one result asked for twice and are never pooled: with 'same'
-- a difference of score means that the server does not repeat itself, and an interval for independent answers is wider
-- than it need be.
create or replace view run_to_run as
with
-- The cells are read once, since over a large store that is nearly all of the work: so the levels' limits and the scores
-- are worked out here, as in level_limits and arm_intervals (no failure doubted, alpha not adjusted).
counted as materialized (
    select grouping(level_id) = 0 as of_level, run_id, arm_id, suite_id, identity, level_id,
        count(*) filter (where planned) as n_planned,
        count(*) filter (where planned and passed) as k,
        count(passed) filter (where planned) as n,
        count(decode_tps) filter (where planned and complete) as decode_n,
        avg(decode_tps) filter (where planned and complete) as decode,
        stddev_samp(decode_tps) filter (where planned and complete) as decode_sd,
        list(request_seed) filter (where planned and complete and request_seed is not null) as seeds,
        -- Of all answers, as in compared_aspects; one that is not known is a value of its own.
        count(*) filter (where generation_id is not null) as n_asked,
        min(coalesce(prompt_hash, '')) filter (where generation_id is not null) as prompt_from,
        max(coalesce(prompt_hash, '')) filter (where generation_id is not null) as prompt_to,
        count(*) filter (where grade_id is not null) as n_graded,
        min(coalesce(grading_hash, '')) filter (where grade_id is not null) as grading_from,
        max(coalesce(grading_hash, '')) filter (where grade_id is not null) as grading_to
    from cells
    where identity is not null
    group by grouping sets ((run_id, arm_id, suite_id, identity, level_id), (run_id, arm_id, suite_id, identity))
),
-- Numbered, so that pairs are two small numbers.
arms as materialized (
    select row_number() over () as arm, c.run_id, c.arm_id, c.suite_id, c.identity,
        c.run_id not in (select run_id from decisions) as holds,
        coalesce(c.decode, p.decode_tps_mean) as decode,
        case when c.decode is null then p.decode_tps_n else c.decode_n end as decode_n,
        coalesce(c.decode_sd, p.decode_tps_sd) as decode_sd,
        list_distinct(c.seeds) as seeds
    from counted c
    left join printed_figures p using (run_id, arm_id, suite_id)
    where not c.of_level and c.n > 0
),
shares as materialized (
    select a.arm, dense_rank() over (order by c.level_id) as level, c.k, c.n, case when c.n > 0 then c.k::double / c.n end as rate,
        l.points / sum(l.points) over (partition by a.arm) as share,
        count(l.points) over (partition by a.arm) as n_levels
    from counted c
    join arms a using (run_id, arm_id, suite_id, identity)
    left join levels l using (run_id, suite_id, level_id)
    where c.of_level and c.n_planned > 0
),
alpha as (
    select max(value) as alpha from rule_settings where name = 'alpha'
),
limits as materialized (
    select s.*, alpha, clopper.low, clopper.high
    from shares s
    left join (
        select k, n, clopper_pearson_low(k, n, alpha) as low, clopper_pearson_high(k, n, alpha) as high
        from (select distinct k, n from shares), alpha
    ) clopper using (k, n), alpha
),
arm_scores as (
    select arm, min(n) as n,
        case when count(rate) = any_value(n_levels) and count(*) = count(share) then 100 * sum(share * rate) end as score
    from limits
    group by arm
),
pairs as materialized (
    select l.arm as later, e.arm as earlier
    from arms l
    join arms e on e.suite_id = l.suite_id and e.identity = l.identity and e.run_id < l.run_id
),
-- An arm's prompts and gradings are compared whatever identity answered them.
hashes as materialized (
    select run_id, arm_id, level_id, 'prompt of ' || level_id as aspect, min(prompt_from) as first, max(prompt_to) as last
    from counted
    where of_level and n_asked > 0
    group by all
    union all
    select run_id, arm_id, level_id, 'grading of ' || level_id, min(grading_from), max(grading_to)
    from counted
    where of_level and n_graded > 0
    group by all
),
aspects as materialized (
    select a.arm, h.aspect, dense_rank() over (order by h.aspect) as number, h.first, h.last
    from arms a
    join hashes h using (run_id, arm_id)
),
together as materialized (
    select arm, list({'aspect': aspect, 'first': first, 'last': last} order by aspect) as aspects, bool_and(first = last) as one
    from aspects
    group by arm
),
unlike as (
    select p.later, p.earlier
    from pairs p
    join together x on x.arm = p.later
    join together y on y.arm = p.earlier
    where x.aspects <> y.aspects or not x.one or not y.one
),
differing as (
    select p.later, p.earlier, string_agg(x.aspect, ', ' order by x.aspect) as aspects
    from unlike p
    join aspects x on x.arm = p.later
    join aspects y on one_key(y.arm, y.number) = one_key(p.earlier, x.number)
    where x.first <> x.last or y.first <> y.last or x.first <> y.first
    group by p.later, p.earlier
),
scores as (
    select p.later, p.earlier,
        count(x.rate - y.rate) = max(x.n_levels) and max(x.n_levels) = max(y.n_levels) and count(*) = count(x.share)
            and bool_and(abs(x.share - y.share) < 1e-9) as complete,
        100 * sum(x.share * x.rate - y.share * y.rate) as difference,
        100 * sqrt(sum(pow(x.share * (x.rate - x.low), 2) + pow(y.share * (y.high - y.rate), 2))) as mover_below,
        100 * sqrt(sum(pow(x.share * (x.high - x.rate), 2) + pow(y.share * (y.rate - y.low), 2))) as mover_above,
        max(ln(2 / x.alpha)) as log_error,
        case when min(least(x.n, y.n)) < pow(log_error, 2) / 4 then 100 * sqrt(log_error / 2 * sum(
            case when x.n > 0 and y.n > 0 then x.share * x.share * (1.0 / x.n + 1.0 / y.n) end)) else 0 end as least_width
    from pairs p
    join limits x on x.arm = p.later
    join limits y on one_key(y.arm, y.level) = one_key(p.earlier, x.level)
    group by p.later, p.earlier
),
matched as (
    select p.later, p.earlier, l, e, i.n as n, j.n as earlier_n, i.score, j.score as earlier_score,
        difference_of(l.decode, e.decode) as decode_difference,
        case when l.decode_n > 1 and e.decode_n > 1 then pow(l.decode_sd, 2) / l.decode_n end as vl,
        case when l.decode_n > 1 and e.decode_n > 1 then pow(e.decode_sd, 2) / e.decode_n end as ve,
        floor(pow(vl + ve, 2) / nullif(pow(vl, 2) / (l.decode_n - 1) + pow(ve, 2) / (e.decode_n - 1), 0))::bigint as df
    from pairs p
    join arms l on l.arm = p.later
    join arms e on e.arm = p.earlier
    left join arm_scores i on i.arm = p.later
    left join arm_scores j on j.arm = p.earlier
),
joined as (
    select b.*, s.complete, s.difference, s.mover_below, s.mover_above, s.least_width, d.aspects,
        case when b.vl + b.ve = 0 then 0.0 else sqrt(b.vl + b.ve) * coalesce(t.t975, t975_large(b.df)) end as decode_half,
        s.complete and b.l.holds and b.e.holds as has_interval,
        len(list_intersect(b.l.seeds, b.e.seeds)) as n_same
    from matched b
    left join scores s on s.later = b.later and s.earlier = b.earlier
    left join differing d on d.later = b.later and d.earlier = b.earlier
    left join t_quantiles t on t.df = b.df
),
judged as (
    select
        l.run_id as run_id, l.arm_id as arm_id, l.suite_id as suite_id, l.identity as identity,
        e.run_id as earlier_run_id, e.arm_id as earlier_arm_id,
        n, earlier_n, score, earlier_score,
        case when complete and aspects is null then difference end as score_difference,
        case when has_interval and aspects is null then greatest(-100.0, difference - greatest(mover_below, least_width)) end as score_low,
        case when has_interval and aspects is null then least(100.0, difference + greatest(mover_above, least_width)) end as score_high,
        l.decode as decode_tps, e.decode as earlier_decode_tps, decode_difference,
        decode_difference - decode_half as decode_low, decode_difference + decode_half as decode_high,
        case
            when greatest(len(l.seeds), len(e.seeds)) = 0 then null
            when n_same = 0 then 'other'
            when n_same = len(l.seeds) and n_same = len(e.seeds) then 'same'
            else 'partly the same'
        end as seeds,
        n_same as n_same_seeds, greatest(len(l.seeds), len(e.seeds)) as n_seeds,
        case
            when aspects is not null then 'they differ in ' || aspects
            when complete is not true then 'not every level was measured in both'
            when not (l.holds and e.holds) then 'a run stopped by its results has no interval for a fixed number of iterations'
            when decode_half is null then 'fewer than two decode rates in one of the runs'
        end as reason
    from joined
)
select * exclude (reason),
    score_low <= 0 and score_high >= 0 as score_within_noise,
    decode_low <= 0 and decode_high >= 0 as decode_within_noise,
    score_within_noise and decode_within_noise as within_noise,
    reason
from judged;
