-- pass@k: how often at least one of k answers of an arm passes, in percent (M. Chen et al., "Evaluating large language
-- models trained on code", 2021). With c of n measured answers passed, the unbiased estimate is
--     1 - C(n - c, k) / C(n, k),
-- here as the product of (n - c - j) / (n - j) over j = 0 .. k - 1, which is exactly 0 when n - c < k. It needs n >= k;
-- otherwise it is NULL and `reason` says so. level_id is NULL for the mean over the levels, where each counts alike, as in
-- the paper, and which is NULL as soon as one level is.
--
-- It is about answers drawn independently: for an arm whose sampler always takes the likeliest token, k answers are one
-- answer. Answers that were not measured are in neither c nor n. In a run that stopped by its results (table decisions)
-- n depends on the passes, and the estimate leans.
create or replace view pass_at_k as
with levels_at as (
    select
        r.run_id, r.suite_id, r.arm_id, r.identity, r.level_id, r.level_index, a.k, r.n, r.k as c,
        case when r.n >= a.k then
            100 * (1 - list_product(list_transform(range(a.k), lambda j: (r.n - r.k - j) / (r.n - j)))) end as pass_at_k
    from level_pass_rates r, (values (1), (2), (3), (5), (10)) a(k)
)
select
    run_id, suite_id, arm_id, identity, level_id, level_index, k, n, c, 1 as n_levels, pass_at_k,
    case when pass_at_k is null then n || ' measured answers, fewer than ' || k end as reason
from levels_at
union all by name
select
    run_id, suite_id, arm_id, identity, null::varchar as level_id, k, min(n) as n, count(*)::integer as n_levels,
    case when count(pass_at_k) = count(*) then avg(pass_at_k) end as pass_at_k,
    case when count(pass_at_k) < count(*) then
        (count(*) - count(pass_at_k)) || ' of ' || count(*) || ' levels have fewer than ' || k || ' measured answers' end as reason
from levels_at
group by run_id, suite_id, arm_id, identity, k;
