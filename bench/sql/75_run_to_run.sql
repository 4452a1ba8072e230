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
asked as (
    select run_id, arm_id, suite_id, identity, list(distinct request_seed) filter (where request_seed is not null) as seeds
    from cells
    where planned and complete
    group by run_id, arm_id, suite_id, identity
),
arms as materialized (
    select s.run_id, s.arm_id, s.suite_id, s.identity, i.score, i.n, i.holds,
        s.decode_tps_mean as decode, s.decode_tps_n as decode_n, s.decode_tps_sd as decode_sd, coalesce(a.seeds, []) as seeds
    from arm_summary s
    left join arm_intervals i
        on i.run_id = s.run_id and i.arm_id = s.arm_id and i.suite_id = s.suite_id and i.identity = s.identity
    left join asked a
        on a.run_id = s.run_id and a.arm_id = s.arm_id and a.suite_id = s.suite_id and a.identity = s.identity
    where s.identity is not null and s.n_measured > 0
),
limits as materialized (from level_limits where not doubtful),
hashes as materialized (
    select run_id, arm_id, aspect, value from compared_aspects where aspect like 'prompt of %' or aspect like 'grading of %'
),
pairs as materialized (
    select l as l, e as e from arms l join arms e on e.suite_id = l.suite_id and e.identity = l.identity and e.run_id < l.run_id
),
differing as (
    select p.l.run_id as run_id, p.l.arm_id as arm_id, p.e.run_id as earlier_run_id, p.e.arm_id as earlier_arm_id,
        string_agg(distinct x.aspect, ', ' order by x.aspect) as aspects
    from pairs p
    join hashes x on x.run_id = p.l.run_id and x.arm_id = p.l.arm_id
    join hashes y on y.run_id = p.e.run_id and y.arm_id = p.e.arm_id and y.aspect = x.aspect and y.value is distinct from x.value
    group by all
),
scores as (
    select p.l.run_id as run_id, p.l.arm_id as arm_id, p.e.run_id as earlier_run_id, p.e.arm_id as earlier_arm_id,
        p.l.suite_id as suite_id, p.l.identity as identity,
        count(x.rate - y.rate) = max(x.n_levels) and max(x.n_levels) = max(y.n_levels) and count(*) = count(x.share)
            and bool_and(abs(x.share - y.share) < 1e-9) as complete,
        100 * sum(x.share * x.rate - y.share * y.rate) as difference,
        100 * sqrt(sum(pow(x.share * (x.rate - x.low), 2) + pow(y.share * (y.high - y.rate), 2))) as mover_below,
        100 * sqrt(sum(pow(x.share * (x.high - x.rate), 2) + pow(y.share * (y.rate - y.low), 2))) as mover_above,
        max(ln(2 / x.alpha)) as log_error,
        case when min(least(x.n, y.n)) < pow(log_error, 2) / 4 then 100 * sqrt(log_error / 2 * sum(
            case when x.n > 0 and y.n > 0 then x.share * x.share * (1.0 / x.n + 1.0 / y.n) end)) else 0 end as least_width
    from pairs p
    join limits x on x.run_id = p.l.run_id and x.arm_id = p.l.arm_id and x.suite_id = p.l.suite_id and x.identity = p.l.identity
    join limits y on y.run_id = p.e.run_id and y.arm_id = p.e.arm_id and y.suite_id = p.e.suite_id and y.identity = p.e.identity
        and y.level_id = x.level_id
    group by all
),
rates as (
    select l, e, difference_of(l.decode, e.decode) as decode_difference,
        case when l.decode_n > 1 and e.decode_n > 1 then pow(l.decode_sd, 2) / l.decode_n end as vl,
        case when l.decode_n > 1 and e.decode_n > 1 then pow(e.decode_sd, 2) / e.decode_n end as ve,
        floor(pow(vl + ve, 2) / nullif(pow(vl, 2) / (l.decode_n - 1) + pow(ve, 2) / (e.decode_n - 1), 0))::bigint as df
    from pairs
),
joined as (
    select r.*, s.*, d.aspects,
        case when r.vl + r.ve = 0 then 0.0 else sqrt(r.vl + r.ve) * coalesce(t.t975, t975_large(r.df)) end as decode_half,
        s.complete and r.l.holds and r.e.holds as has_interval,
        len(list_intersect(r.l.seeds, r.e.seeds)) as n_same
    from rates r
    left join scores s
        on s.run_id = r.l.run_id and s.arm_id = r.l.arm_id and s.earlier_run_id = r.e.run_id and s.earlier_arm_id = r.e.arm_id
        and s.suite_id = r.l.suite_id and s.identity = r.l.identity
    left join differing d
        on d.run_id = r.l.run_id and d.arm_id = r.l.arm_id and d.earlier_run_id = r.e.run_id and d.earlier_arm_id = r.e.arm_id
    left join t_quantiles t on t.df = r.df
),
judged as (
    select
        l.run_id as run_id, l.arm_id as arm_id, l.suite_id as suite_id, l.identity as identity,
        e.run_id as earlier_run_id, e.arm_id as earlier_arm_id,
        l.n as n, e.n as earlier_n, l.score as score, e.score as earlier_score,
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
