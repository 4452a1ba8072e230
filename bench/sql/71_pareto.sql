-- The memory that decides whether an arm fits: peak VRAM of one on the GPU, peak RAM of one on the CPU. NULL where the
-- device or the peak is not known.
create or replace macro peak_memory(device, vram_peak_bytes, rss_peak_bytes) as
    case device when 'gpu' then vram_peak_bytes when 'cpu' then rss_peak_bytes end;

-- Which arms are worth a look at all: no other arm is at least as good in answers, time and memory and better in one.
--
-- One row for each arm of a run and each identity that answered for it. The coordinates are mean_score (higher is
-- better), answer_s_mean (seconds to the answer, lower) and memory_bytes (peak VRAM of an arm on the GPU, peak RAM of
-- one on the CPU, lower); the decode rate stands beside them and decides nothing. Arms are held against each other
-- within their comparable group. Where one of the three is not known, `on_front` and `dominated_by` are NULL and
-- `reason` says which: such an arm is neither on the front nor behind it, and puts no other arm behind it.
--
-- The front is of the figures as measured. `surely_dominated` is the stricter statement: an arm that dominates it has
-- better answers by the pair's adjusted exact interval, whoever is to blame for doubtful failures, and is faster by the
-- interval of the seconds to the answer (pairwise). Memory is one measurement, so there it is the figure that counts.
create or replace view pareto as
with
arms as (
    select
        s.run_id, s.suite_id, s.arm_id, s.identity, g.comparable_group,
        s.mean_score, s.n as score_n, s.answer_s_mean, s.answer_s_n, s.decode_tps_mean, s.decode_tps_n,
        case s.device when 'gpu' then 'peak VRAM' when 'cpu' then 'peak RAM' end as memory_kind,
        peak_memory(s.device, s.vram_peak_bytes, s.rss_peak_bytes) as memory_bytes,
        concat_ws('; ',
            case when s.mean_score is null then 'no iteration has a score' end,
            case when s.answer_s_mean is null then 'seconds to the answer not measured' end,
            case
                when s.device is null then 'not known whether it ran on the GPU'
                when memory_bytes is null then memory_kind || ' not measured'
            end) as lacking
    from arm_summary s
    left join comparable_groups g using (run_id, arm_id)
),
placed as materialized (
    select *,
        case
            when lacking <> '' then lacking
            when min(memory_kind) filter (where lacking = '') over (partition by run_id, suite_id, comparable_group)
                <> max(memory_kind) filter (where lacking = '') over (partition by run_id, suite_id, comparable_group)
                then 'some arms ran on the GPU and some on the CPU: their memory is not one coordinate'
        end as reason,
        -- The same values summed in another order may give another last digit.
        round(mean_score, 9) as score,
        round(answer_s_mean, 6) as seconds
    from arms
),
pairs as materialized (from pairwise),
separated as (
    select run_id, suite_id, arm_b as arm_id, identity_b as identity, arm_a as other, identity_a as other_identity
    from pairs where verdict = 'a better' and robust is not false and answer_high < 0
    union all
    select run_id, suite_id, arm_a, identity_a, arm_b, identity_b
    from pairs where verdict = 'b better' and robust is not false and answer_low > 0
),
behind as (
    select a.run_id, a.suite_id, a.arm_id, a.identity,
        list(o.arm_id order by o.arm_id) as by_figures,
        list(o.arm_id order by o.arm_id) filter (where s.other is not null) as by_intervals
    from placed a
    join placed o
        on o.run_id = a.run_id and o.suite_id = a.suite_id and o.comparable_group is not distinct from a.comparable_group
        and (o.arm_id <> a.arm_id or o.identity is distinct from a.identity)
        and o.score >= a.score and o.seconds <= a.seconds and o.memory_bytes <= a.memory_bytes
        and (o.score > a.score or o.seconds < a.seconds or o.memory_bytes < a.memory_bytes)
    left join separated s
        on s.run_id = a.run_id and s.suite_id = a.suite_id and s.arm_id = a.arm_id and s.other = o.arm_id
        and s.identity is not distinct from a.identity and s.other_identity is not distinct from o.identity
    where a.reason is null and o.reason is null
    group by all
)
select
    p.run_id, p.suite_id, p.arm_id, p.identity, p.comparable_group, p.mean_score, p.score_n, p.answer_s_mean, p.answer_s_n,
    p.decode_tps_mean, p.decode_tps_n, p.memory_bytes, p.memory_kind,
    case when p.reason is null then b.by_figures is null end as on_front,
    case when p.reason is null then coalesce(b.by_figures, []) end as dominated_by,
    case when p.reason is null then b.by_intervals is not null end as surely_dominated,
    case when p.reason is null then coalesce(b.by_intervals, []) end as surely_dominated_by,
    p.reason
from placed p
left join behind b
    on b.run_id = p.run_id and b.suite_id = p.suite_id and b.arm_id = p.arm_id and b.identity is not distinct from p.identity;
