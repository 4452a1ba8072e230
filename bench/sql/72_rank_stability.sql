-- How steady the order of the arms is: how often each would be first, were the run's iterations drawn again.
--
-- A bootstrap (B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979): in each draw
-- every arm gets as many scores as it has, taken with replacement from its own, and the arms of a comparable group are
-- ranked by their means. `best_pct`: percent of the draws in which the arm is first; arms that tie share a draw.
-- `mean_rank`: 1 is first, ties have the middle of their places. The draws come from a hash of run, arm, identity, draw
-- and place, so they are the same on every machine. Above 500 scores the mean of a draw comes from the normal
-- distribution that it tends to.
--
-- It knows only the scores it has seen: an arm that never failed has no spread, and the bootstrap is then certain where
-- 15 iterations are not. No verdict rests on it; those rest on exact intervals (pairwise).
create or replace view rank_stability as
with
setting as (
    select max(value)::bigint as draws from rule_settings where name = 'bootstrap_draws'
),
scored as (
    select s.run_id, s.suite_id, s.arm_id, s.identity, any_value(g.comparable_group) as comparable_group,
        count(score) as n, avg(score) as mean_score, stddev_samp(score) as sd_score,
        list(score order by iteration) filter (where score is not null) as scores
    from iteration_scores s
    left join comparable_groups g using (run_id, arm_id)
    group by s.run_id, s.suite_id, s.arm_id, s.identity
),
arms as materialized (
    select *,
        count(*) filter (where n >= 2) over (partition by run_id, suite_id, comparable_group) as n_arms,
        run_id || '|' || arm_id || '|' || coalesce(identity, '-') || '|' as name
    from scored
),
drawn as (
    select a.run_id, a.suite_id, a.arm_id, a.identity, a.comparable_group, d.draw,
        round(case
            when n <= 500 then list_avg(list_transform(range(n), lambda i:
                scores[1 + (md5_number_lower(name || d.draw || '|' || i) % n::ubigint)::bigint]))
            -- Box and Muller's transform of two uniform numbers.
            else mean_score + sd_score / sqrt(n)
                * sqrt(-2 * ln((md5_number_lower(name || d.draw || '|u')::double + 1) / 18446744073709551617.0))
                * cos(2 * pi() * md5_number_lower(name || d.draw || '|v')::double / 18446744073709551616.0)
        end, 9) as score
    from arms a, (select unnest(range(draws)) as draw from setting) d
    where n >= 2 and n_arms >= 2
),
ranked as (
    select *,
        rank() over (partition by run_id, suite_id, comparable_group, draw order by score desc) as place,
        count(*) over (partition by run_id, suite_id, comparable_group, draw, score) as n_tied
    from drawn
),
counted as (
    select run_id, suite_id, arm_id, identity,
        100 * avg(case when place = 1 then 1.0 / n_tied else 0 end) as best_pct,
        avg(place + (n_tied - 1) / 2) as mean_rank,
        count(*) as n_draws
    from ranked
    group by all
)
select
    a.run_id, a.suite_id, a.arm_id, a.identity, a.comparable_group, a.n, a.n_arms, a.mean_score,
    c.best_pct, c.mean_rank, c.n_draws,
    case
        when a.n < 2 then 'fewer than two iterations have a score'
        when a.n_arms < 2 then 'no other arm has two scores to be ranked with'
    end as reason,
    'bootstrap of iterations; too sure near 0 and 100' as method
from arms a
left join counted c
    on c.run_id = a.run_id and c.suite_id = a.suite_id and c.arm_id = a.arm_id and c.identity is not distinct from a.identity;
