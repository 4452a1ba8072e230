-- Intervals that verdicts rest on: exact for each level, combined over the levels by MOVER (the method of variance
-- estimates recovery; G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general
-- approach", Statistics in Medicine 27, 2008). With w the level's share of the suite's points, p = k / n its pass rate
-- and [l, u] its Clopper-Pearson interval, an arm's score S = sum(w p) has the ends
--     S - sqrt(sum((w (p - l))^2))   and   S + sqrt(sum((w (u - p))^2)),
-- and the difference of two arms D = S_a - S_b has the ends
--     D - sqrt(sum((w (p_a - l_a))^2 + (w (u_b - p_b))^2))   and
--     D + sqrt(sum((w (u_a - p_a))^2 + (w (p_b - l_b))^2)).
-- They have a width at 0 and at 100, where the t interval has none. benchmarks/verdicts.py measures their coverage.
-- Far out in the tails, where many pairs put the adjusted level, MOVER needs iterations: with m pairs and fewer than
-- ln(2 m / alpha)^2 / 4 of them it errs too often (among four equal arms at n = 2, 12.8 % instead of 5). There the
-- interval of a difference is at least as wide as Hoeffding's, which holds for every n (W. Hoeffding, "Probability
-- inequalities for sums of bounded random variables", JASA 58, 1963):
--     D -+ sqrt(ln(2 m / alpha) / 2 * sum(w^2 (1 / n_a + 1 / n_b))).

-- Each level of each arm with its share of the points and its exact limits, once as it is (doubtful = false) and once
-- with the failures of `harness_doubt` as passes. `_adjusted` limits are at alpha divided by the run's pairs of arms
-- (Bonferroni), so that all pairs together are wrong at most as often as alpha (rule_settings).
create or replace view level_limits as
with
rates as (
    select *,
        count(distinct case when n > 0 then {'arm_id': arm_id, 'identity': identity} end)
            over (partition by run_id, suite_id) as n_arms
    from level_pass_rates
),
doubts as (
    select run_id, arm_id, suite_id, identity, level_id, sum(n) as n
    from harness_doubt
    group by all
),
shares as (
    select
        r.run_id, r.arm_id, r.suite_id, r.identity, r.level_id, r.k, r.n, coalesce(d.n, 0)::bigint as n_doubtful,
        r.level_points
            / sum(r.level_points) over (partition by r.run_id, r.suite_id, r.arm_id, r.identity) as share,
        count(r.level_points) over (partition by r.run_id, r.suite_id, r.arm_id, r.identity) as n_levels,
        greatest(r.n_arms * (r.n_arms - 1) / 2, 1) as n_pairs,
        (select value from rule_settings where name = 'alpha') as alpha
    from rates r
    left join doubts d
        on d.run_id = r.run_id and d.arm_id = r.arm_id and d.suite_id = r.suite_id
        and d.identity is not distinct from r.identity and d.level_id = r.level_id
    where r.n_arms > 0
),
scenarios as (
    select s.* exclude (k), x.doubtful, case when x.doubtful then least(k + n_doubtful, n) else k end as k
    from shares s, (values (false), (true)) x(doubtful)
),
-- Each limit once for all levels with these counts: it takes longer than all else. By run, although it is the same for
-- all, and by gathering the levels instead of joining them: so a filter on a run reaches the files.
gathered as (
    select run_id, k, n, n_pairs, alpha,
        list({'arm_id': arm_id, 'suite_id': suite_id, 'identity': identity, 'level_id': level_id, 'doubtful': doubtful,
            'n_doubtful': n_doubtful, 'share': share, 'n_levels': n_levels}) as levels
    from scenarios
    group by run_id, k, n, n_pairs, alpha
),
limits as (
    select *,
        clopper_pearson_low(k, n, alpha) as low, clopper_pearson_high(k, n, alpha) as high,
        clopper_pearson_low(k, n, alpha / n_pairs) as low_adjusted, clopper_pearson_high(k, n, alpha / n_pairs) as high_adjusted
    from gathered
)
select
    run_id, level.arm_id, level.suite_id, level.identity, level.level_id, level.doubtful, k, n, level.n_doubtful, level.share,
    level.n_levels, n_pairs, alpha,
    case when n > 0 then k::double / n end as rate,
    low, high, low_adjusted, high_adjusted
from (select * exclude (levels), unnest(levels) as level from limits);

-- An arm's mean score with the interval that holds at the ceiling, in percent. It is the mean of the levels' pass rates
-- weighted by points, so it counts measured answers of iterations that have no score of their own too. NULL where a
-- level was never measured. In a run that stopped by its results (table decisions) a fixed-sample interval does not
-- hold: `holds` is false and the ends are NULL.
create or replace view arm_intervals as
with joined as (
    select run_id, arm_id, suite_id, identity, doubtful,
        count(rate) = any_value(n_levels) and count(*) = count(share) as complete,
        min(n) as n,
        100 * sum(share * rate) as score,
        100 * sqrt(sum(pow(share * (rate - low), 2))) as below,
        100 * sqrt(sum(pow(share * (high - rate), 2))) as above
    from level_limits
    group by all
),
flagged as (
    select *, run_id not in (select run_id from decisions) as holds from joined where not doubtful
)
select
    run_id, arm_id, suite_id, identity, n,
    case when complete then score end as score,
    holds,
    case when complete and holds then greatest(0.0, score - below) end as score_low,
    case when complete and holds then least(100.0, score + above) end as score_high,
    'Clopper-Pearson per level, MOVER, 95 %' as method
from flagged;

-- Two-sided quantile of Student's t at 0.05 divided by the pairs of arms: the table's row with at least as many pairs
-- and at most as many degrees of freedom, so never too small. NULL beyond 30 arms.
create or replace macro t_for_pairs(wanted_pairs, wanted_df) as
    (select max_by(q.t, q.df) from t_quantiles_pairs q
     where q.df <= wanted_df and q.pairs = (select min(m.pairs) from t_quantiles_pairs m where m.pairs >= wanted_pairs));

-- Every two arms of a run. arm_a is the one with the higher score. `difference`, low, high: mean score of a less that of
-- b, points of 100, by the formula at the head of 68_pairwise.sql, at the adjusted level. `verdict`, for comparable arms:
--   a better | b better   the interval excludes zero
--   within margin         it does not, and lies inside the margin (rule_settings): no loss to either side
--   not separated         neither; more_iterations is a rough count of those that would separate the arms if the
--                         difference is what it looks like
-- `verdicts_possible` are the verdicts with the failures of `harness_doubt` as passes for a, for b, for both and for
-- none; `robust` says that they are one. A run that stopped by its results has no fixed-sample interval: its verdict is
-- the e-value rule's (decisions_latest).
-- decode_* (tokens per second) and answer_* (seconds to the answer): difference of means with Welch's t interval at the
-- adjusted level, degrees of freedom rounded down. Where a printed figure does not give its n, the number of the arm's
-- scores is taken.
create or replace view pairwise as
with
limits as materialized (from level_limits),
summary as materialized (from arm_summary),
aspects as materialized (from compared_aspects),
margin as (select max(value) as points from rule_settings where name = 'margin'),
-- As in arm_intervals, of which only the score is needed.
level_scores as (
    select run_id, arm_id, suite_id, identity,
        case when count(rate) = any_value(n_levels) and count(*) = count(share) then 100 * sum(share * rate) end as score
    from limits
    where not doubtful
    group by run_id, arm_id, suite_id, identity
),
arms as (
    select
        s.run_id, s.arm_id, s.suite_id, s.identity,
        coalesce(i.score, s.mean_score) as score,
        coalesce(s.decode_tps_n, s.n) as decode_n, s.decode_tps_mean as decode_mean, s.decode_tps_sd as decode_sd,
        s.answer_s_n as answer_n, s.answer_s_mean as answer_mean, s.answer_s_sd as answer_sd
    from summary s
    left join level_scores i
        on i.run_id = s.run_id and i.arm_id = s.arm_id and i.suite_id = s.suite_id and i.identity is not distinct from s.identity
    where s.n_measured > 0 or s.is_published
),
ranked as (
    select *, row_number() over (partition by run_id, suite_id order by score desc nulls last, arm_id, identity) as place,
        greatest(count(*) over (partition by run_id, suite_id), 2) as n_arms
    from arms
),
pairs as (
    select a.run_id, a.suite_id, a as a, b as b, a.n_arms * (a.n_arms - 1) // 2 as n_pairs
    from ranked a
    join ranked b on b.run_id = a.run_id and b.suite_id = a.suite_id and b.place > a.place and b.arm_id <> a.arm_id
),
-- What keeps two arms from being compared.
differing as (
    select run_id, arm_a, arm_b, string_agg(aspect, ', ' order by aspect) as aspects
    from (
        select p.run_id, p.a.arm_id as arm_a, p.b.arm_id as arm_b, x.aspect
        from pairs p
        join aspects x on x.run_id = p.run_id and x.arm_id in (p.a.arm_id, p.b.arm_id)
        group by all
        having count(distinct coalesce(x.value, '-')) > 1
    )
    group by all
),
scenarios as (
    select
        p.run_id, p.suite_id, p.a.arm_id as arm_a, p.a.identity as identity_a, p.b.arm_id as arm_b, p.b.identity as identity_b,
        x.doubtful as doubtful_a, y.doubtful as doubtful_b,
        count(x.rate - y.rate) = max(x.n_levels) and max(x.n_levels) = max(y.n_levels) and count(*) = count(x.share)
            and bool_and(abs(x.share - y.share) < 1e-9) as complete,
        min(x.n) as n_a, min(y.n) as n_b,
        100 * sum(x.share * x.rate - y.share * y.rate) as difference,
        100 * sqrt(sum(pow(x.share * (x.rate - x.low_adjusted), 2) + pow(y.share * (y.high_adjusted - y.rate), 2)))
            as mover_below,
        100 * sqrt(sum(pow(x.share * (x.high_adjusted - x.rate), 2) + pow(y.share * (y.rate - y.low_adjusted), 2)))
            as mover_above,
        max(ln(2 * x.n_pairs / x.alpha)) as log_error,
        100 * sqrt(log_error / 2 * sum(case when x.n > 0 and y.n > 0 then x.share * x.share * (1.0 / x.n + 1.0 / y.n) end))
            as hoeffding,
        least(n_a, n_b) < pow(log_error, 2) / 4 as few,
        case when few then greatest(mover_below, hoeffding) else mover_below end as below,
        case when few then greatest(mover_above, hoeffding) else mover_above end as above,
        -- The part of below^2 from levels that were always passed or always failed: there the limit comes nearer with
        -- n and not with its root.
        1e4 * sum(case when x.k = x.n then pow(x.share * (x.rate - x.low_adjusted), 2) else 0 end
            + case when y.k = 0 then pow(y.share * (y.high_adjusted - y.rate), 2) else 0 end) as below_at_ends,
        -- The same by the limit at the ends of many iterations, 1 - (alpha / 2)^(1 / n) -> ln(2 / alpha) / n: at few it is
        -- cut short by the end of the scale.
        1e4 * sum(case when x.k = x.n then pow(x.share * ln(2 * x.n_pairs / x.alpha) / x.n, 2) else 0 end
            + case when y.k = 0 then pow(y.share * ln(2 * y.n_pairs / y.alpha) / y.n, 2) else 0 end) as limit_at_ends
    from pairs p
    join limits x on x.run_id = p.run_id and x.suite_id = p.suite_id and x.arm_id = p.a.arm_id
        and x.identity is not distinct from p.a.identity
    join limits y on y.run_id = p.run_id and y.suite_id = p.suite_id and y.arm_id = p.b.arm_id
        and y.identity is not distinct from p.b.identity and y.level_id = x.level_id
    group by all
),
judged as (
    select *,
        case
            when not complete then null
            when difference - below > 0 then 'a better'
            when difference + above < 0 then 'b better'
            when difference - below >= -margin.points and difference + above <= margin.points then 'within margin'
            else 'not separated'
        end as verdict
    from scenarios, margin
),
scored as (
    select run_id, suite_id, arm_a, identity_a, arm_b, identity_b,
        max({'n_a': n_a, 'n_b': n_b, 'difference': difference, 'low': greatest(-100.0, difference - below),
            'high': least(100.0, difference + above), 'rest': pow(mover_below, 2) - below_at_ends, 'at_ends': limit_at_ends,
            'hoeffding': hoeffding,
            'log_error': log_error, 'complete': complete, 'verdict': verdict})
            filter (where not doubtful_a and not doubtful_b) as s,
        list_sort(list_distinct(list(verdict))) as verdicts_possible
    from judged
    group by all
),
decided as (
    select p.run_id, p.a.arm_id as arm_a, p.b.arm_id as arm_b,
        case
            when max(d."exit") filter (where d.arm_id = p.b.arm_id and d.against = p.a.arm_id) = 'out'
                or bool_or(d.arm_id = p.a.arm_id and d."exit" = 'best') then 'a better'
            when max(d."exit") filter (where d.arm_id = p.a.arm_id and d.against = p.b.arm_id) = 'out'
                or bool_or(d.arm_id = p.b.arm_id and d."exit" = 'best') then 'b better'
            when count(*) filter (where d."exit" = 'equivalent' and d.arm_id in (p.a.arm_id, p.b.arm_id)) = 2 then 'within margin'
            else 'not separated'
        end as verdict
    from pairs p
    join decisions_latest d on d.run_id = p.run_id
    group by all
),
speeds as (
    select p.*,
        difference_of(p.a.decode_mean, p.b.decode_mean) as decode_difference,
        difference_of(p.a.answer_mean, p.b.answer_mean) as answer_difference,
        case when p.a.decode_n > 1 and p.b.decode_n > 1 then pow(p.a.decode_sd, 2) / p.a.decode_n end as decode_va,
        case when p.a.decode_n > 1 and p.b.decode_n > 1 then pow(p.b.decode_sd, 2) / p.b.decode_n end as decode_vb,
        case when p.a.answer_n > 1 and p.b.answer_n > 1 then pow(p.a.answer_sd, 2) / p.a.answer_n end as answer_va,
        case when p.a.answer_n > 1 and p.b.answer_n > 1 then pow(p.b.answer_sd, 2) / p.b.answer_n end as answer_vb
    from pairs p
),
-- Whole degrees of freedom, so that there are few to look up.
freedoms as (
    select *,
        floor(pow(decode_va + decode_vb, 2) / (pow(decode_va, 2) / (a.decode_n - 1) + pow(decode_vb, 2) / (b.decode_n - 1)))
            as decode_df,
        floor(pow(answer_va + answer_vb, 2) / (pow(answer_va, 2) / (a.answer_n - 1) + pow(answer_vb, 2) / (b.answer_n - 1)))
            as answer_df
    from speeds
),
widths as (
    select run_id, suite_id, a, b, n_pairs, decode_difference, answer_difference,
        case when decode_va + decode_vb = 0 then 0.0 else sqrt(decode_va + decode_vb) * t_for_pairs(n_pairs, decode_df) end
            as decode_half,
        case when answer_va + answer_vb = 0 then 0.0 else sqrt(answer_va + answer_vb) * t_for_pairs(n_pairs, answer_df) end
            as answer_half
    from freedoms
),
joined as (
    select w.*, c.verdicts_possible, d.verdict as decided, x.aspects, c.s as s,
        x.aspects is null as comparable
    from widths w
    left join scored c on c.run_id = w.run_id and c.suite_id = w.suite_id and c.arm_a = w.a.arm_id and c.arm_b = w.b.arm_id
        and c.identity_a is not distinct from w.a.identity and c.identity_b is not distinct from w.b.identity
    left join decided d on d.run_id = w.run_id and d.arm_a = w.a.arm_id and d.arm_b = w.b.arm_id
    left join differing x on x.run_id = w.run_id and x.arm_a = w.a.arm_id and x.arm_b = w.b.arm_id
)
select
    run_id, suite_id, a.arm_id as arm_a, a.identity as identity_a, b.arm_id as arm_b, b.identity as identity_b,
    a.score as score_a, b.score as score_b,
    s.n_a as n_a, s.n_b as n_b,
    case when s.complete then s.difference end as difference,
    case when s.complete and decided is null then s.low end as low,
    case when s.complete and decided is null then s.high end as high,
    n_pairs,
    comparable,
    case
        when not comparable then 'they differ in ' || aspects
        when s is null then 'no counts of passes by level'
        when not s.complete then 'not every level was measured for both'
    end as reason,
    case when comparable then coalesce(decided, s.verdict) end as verdict,
    case when comparable and decided is null then verdicts_possible end as verdicts_possible,
    case when comparable and decided is null then len(verdicts_possible) = 1 end as robust,
    case when comparable and decided is null and s.verdict = 'not separated' and s.difference > 1e-9
        -- f times the iterations make MOVER's below^2 = rest / f + at_ends / f^2; it equals difference^2 at this f. The
        -- wider interval of few iterations must have ended too, or exclude zero itself.
        then greatest(1, ceil(least(s.n_a, s.n_b) * ((s.rest + sqrt(pow(s.rest, 2) + 4 * pow(s.difference, 2) * s.at_ends))
            / (2 * pow(s.difference, 2)) - 1)),
            least(ceil(pow(s.log_error, 2) / 4), ceil(least(s.n_a, s.n_b) * pow(s.hoeffding / s.difference, 2)))
                - least(s.n_a, s.n_b))::bigint end as more_iterations,
    case when decided is null then 'Clopper-Pearson per level, MOVER, Bonferroni' else 'e-values, stopped by the results' end as method,
    decode_difference, decode_difference - decode_half as decode_low, decode_difference + decode_half as decode_high,
    answer_difference, answer_difference - answer_half as answer_low, answer_difference + answer_half as answer_high
from joined;
