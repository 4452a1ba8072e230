-- Which arm to use, by rule: one row for each run and goal. `arms` holds the winner, or all that share the place.
--
-- goal          ranked by                             from
--   quality       mean score, higher is better         pairwise.verdict: an arm is among the best when no arm is better
--   throughput    decode rate, higher is better        pairwise.decode_low, decode_high
--   answer_time   seconds to the answer, lower         pairwise.answer_low, answer_high
--   memory        peak VRAM, else idle VRAM, else RAM  arm_summary; one measurement, so within 1 % is a tie
-- status
--   winner        one arm; every other one is separated from it
--   tie           several arms that are not separated from the best figure
--   withheld      quality: failures that may be the bench's doing (harness_doubt), counted as passes for one arm, for
--                 another or for both, change who is among the best; `reason` names them.
--                 throughput, answer_time: other work loaded the host's cores while an arm ran on the CPU, so that a
--                 difference may be the host's and not the arm's
--   not_compared  the arms differ in something that must be the same
--   not_measured  fewer than two arms have the figure
-- `text` is the verdict as a sentence, `evidence` the figures behind it.
create or replace view verdicts as
with
pairs as materialized (from pairwise),
doubts as materialized (from harness_doubt),
summary as materialized (from arm_summary),
runs_known as (select distinct run_id, suite_id from summary where suite_id is not null),
mixed as (
    select run_id, suite_id, string_agg(distinct reason, '; ' order by reason) as reason
    from pairs where not comparable group by run_id, suite_id
),
by_decision as (
    select run_id, any_value(rule) as rule, any_value(alpha) as alpha, bool_or("exit" = 'equivalent') as equivalent,
        string_agg(arm_id || ' after ' || iterations || ' iterations: ' || detail, '; ' order by iterations, arm_id) as stops
    from decisions_latest group by run_id
),
arms as (
    select
        run_id, suite_id, arm_id, identity, mean_score as score, n, n_no_answer, n_time_limit, n_measured,
        decode_tps_mean, answer_s_mean, device, vram_peak_bytes, vram_idle_bytes, rss_peak_bytes
    from summary
    where n_measured > 0 or is_published
),
-- Quality ----------------------------------------------------------------------------------------------------------
-- Both sides of every pair: is the arm worse than the other one, surely or perhaps?
sides as (
    select run_id, suite_id, arm_a as arm_id, identity_a as identity, arm_b as other,
        verdict = 'b better' as worse, coalesce(list_contains(verdicts_possible, 'b better'), verdict = 'b better') as maybe_worse,
        verdict = 'b better' and coalesce(robust, true) as surely_worse,
        score_a as score, verdict is null as unknown
    from pairs
    union all
    select run_id, suite_id, arm_b, identity_b, arm_a,
        verdict = 'a better', coalesce(list_contains(verdicts_possible, 'a better'), verdict = 'a better'),
        verdict = 'a better' and coalesce(robust, true), score_b, verdict is null
    from pairs
),
standing as (
    select
        s.run_id, s.suite_id, s.arm_id, s.identity, max(s.score) as score,
        bool_or(coalesce(s.worse, false)) or coalesce(bool_or(d."exit" = 'out'), false) as worse,
        bool_or(coalesce(s.surely_worse, false)) or coalesce(bool_or(d."exit" = 'out'), false) as surely_worse,
        bool_or(coalesce(s.maybe_worse, false)) as maybe_worse,
        bool_or(s.unknown) as unknown
    from sides s
    left join decisions_latest d on d.run_id = s.run_id and d.arm_id = s.arm_id
    group by s.run_id, s.suite_id, s.arm_id, s.identity
),
quality_sets as (
    select
        run_id, suite_id,
        list(arm_id order by score desc nulls last, arm_id) filter (where not worse) as best,
        list(arm_id order by score desc nulls last, arm_id) filter (where worse) as behind,
        list(arm_id order by score desc nulls last, arm_id) filter (where worse <> surely_worse or not worse and maybe_worse)
            as doubtful,
        bool_or(unknown) as unknown
    from standing
    group by run_id, suite_id
),
doubt_texts as (
    select run_id, suite_id, string_agg(arm_id || ': ' || text, '; ' order by arm_id) as text
    from (
        select run_id, suite_id, arm_id, string_agg(n || ' ' || case cause
                when 'regraded' then 'that another verdict on the same answer passes'
                when 'suspect' then 'suspect and not decided by a person'
                when 'context_overflow' then 'that did not fit into the context'
                when 'no_code' then 'without code that the bench could find'
                when 'interface' then 'for a name that the tests need'
                when 'fallback_rule' then 'on code found by a rule that guesses' end, ', ' order by cause) as text
        from (select run_id, suite_id, arm_id, cause, sum(n) as n from doubts group by all)
        group by run_id, suite_id, arm_id
    )
    group by run_id, suite_id
),
-- The pairs that the quality verdict rests on: the best figure against each of the others.
pair_texts as (
    select p.run_id, p.suite_id,
        string_agg(
            p.arm_a || ' and ' || p.arm_b || ': difference ' || format('{:.1f}', p.difference) || ' points'
                || coalesce(', 95 % over all pairs [' || format('{:.1f}', p.low) || ', ' || format('{:.1f}', p.high) || ']', '')
                || ', ' || replace(replace(p.verdict, 'a better', p.arm_a || ' better'), 'b better', p.arm_b || ' better')
                || case when p.more_iterations > 0 then '; about ' || p.more_iterations || ' more iteration'
                    || case when p.more_iterations = 1 then '' else 's' end || ' would be needed if the difference is real' else '' end,
            '. ' order by p.score_b desc nulls last, p.arm_b) as text
    from pairs p
    join quality_sets q using (run_id, suite_id)
    where p.arm_a = q.best[1] and p.difference is not null and p.verdict is not null
    group by p.run_id, p.suite_id
),
quality as (
    select
        k.run_id, k.suite_id, 'quality' as goal,
        case
            when m.reason is not null then 'not_compared'
            when q.best is null or q.unknown then 'not_measured'
            when len(coalesce(q.doubtful, [])) > 0 then 'withheld'
            when len(q.best) = 1 then 'winner'
            else 'tie'
        end as status,
        q.best as arms,
        t.text as evidence,
        case
            when m.reason is not null then m.reason
            when q.best is null then 'fewer than two arms were measured'
            when q.unknown then 'not every level was measured, or the source gives no passes by level'
            when len(coalesce(q.doubtful, [])) > 0 then 'failures that may be the bench''s doing, counted as passes too, change whether '
                || array_to_string(q.doubtful, ' and ') || case when len(q.doubtful) = 1 then ' is' else ' are' end
                || ' among the best (' || coalesce(d.text, 'no cause') || ')'
        end as reason,
        case when b.run_id is not null and b.equivalent and len(q.best) > 1 then 'Equivalent: ' when len(q.best) > 1 then 'Not separated: ' else 'Best: ' end
            || array_to_string(q.best, ', ')
            || coalesce('; worse: ' || array_to_string(q.behind, ', '), '') as sentence
    from runs_known k
    left join quality_sets q using (run_id, suite_id)
    left join mixed m using (run_id, suite_id)
    left join doubt_texts d using (run_id, suite_id)
    left join pair_texts t using (run_id, suite_id)
    left join by_decision b on b.run_id = k.run_id
),
-- Speed ------------------------------------------------------------------------------------------------------------
figures as (
    select run_id, suite_id, 'throughput' as goal, arm_id, decode_tps_mean as value, -decode_tps_mean as cost, n_no_answer, n_time_limit, n_measured
    from arms where decode_tps_mean is not null
    union all
    select run_id, suite_id, 'answer_time', arm_id, answer_s_mean, answer_s_mean, n_no_answer, n_time_limit, n_measured
    from arms where answer_s_mean is not null
),
fastest as (
    select *, count(distinct arm_id) over (partition by run_id, suite_id, goal) as n_arms
    from figures
    qualify row_number() over (partition by run_id, suite_id, goal order by cost, arm_id) = 1
),
gaps as (
    select run_id, suite_id, arm_a, arm_b, 'throughput' as goal, abs(decode_difference) as gap,
        coalesce(decode_low <= 0 and decode_high >= 0, true) as tied, (decode_high - decode_low) / 2 as half from pairs
    union all
    select run_id, suite_id, arm_a, arm_b, 'answer_time', abs(answer_difference),
        coalesce(answer_low <= 0 and answer_high >= 0, true), (answer_high - answer_low) / 2 from pairs
),
against as (
    select f.run_id, f.suite_id, f.goal, g.gap, g.tied, g.half, o.arm_id as other, o.value as other_value
    from fastest f
    join figures o on o.run_id = f.run_id and o.suite_id = f.suite_id and o.goal = f.goal and o.arm_id <> f.arm_id
    join gaps g on g.run_id = f.run_id and g.suite_id = f.suite_id and g.goal = f.goal
        and (g.arm_a = f.arm_id and g.arm_b = o.arm_id or g.arm_b = f.arm_id and g.arm_a = o.arm_id)
),
busy as (
    select run_id, 'other work loaded the host while an arm ran ('
        || string_agg(arm_id || ': ' || host_busy, '; ' order by arm_id) || '); run again on a quiet machine' as reason
    from arms_latest where host_busy is not null and coalesce(device, 'cpu') <> 'gpu'
    group by run_id
),
speed as (
    select
        f.run_id, f.suite_id, f.goal,
        case when any_value(m.reason) is not null then 'not_compared' when any_value(f.n_arms) < 2 then 'not_measured'
            when any_value(w.reason) is not null then 'withheld'
            when bool_or(a.tied) then 'tie' else 'winner' end as status,
        list_concat([any_value(f.arm_id)], coalesce(list(a.other order by a.gap) filter (where a.tied), [])) as arms,
        any_value(f.arm_id) || ' ' || format('{:.1f}', any_value(f.value)) || case f.goal when 'throughput' then ' tokens a second' else ' s' end
            || coalesce('; ' || string_agg(a.other || ' ' || format('{:.1f}', a.other_value) || ' (difference ' || format('{:.1f}', a.gap)
                || coalesce(' ± ' || format('{:.1f}', a.half), ', no interval') || ')', ', ' order by a.gap), '') as evidence,
        case when any_value(m.reason) is not null then any_value(m.reason) when any_value(f.n_arms) < 2 then 'fewer than two arms have the figure'
            else any_value(w.reason) end as reason,
        case f.goal when 'throughput' then 'Highest decode rate: ' else 'Fewest seconds to the answer: ' end
            || array_to_string(list_concat([any_value(f.arm_id)], coalesce(list(a.other order by a.gap) filter (where a.tied), [])), ', ')
            || case when bool_or(a.tied) then ' (not separated)' else '' end
            || case when any_value(coalesce(f.n_no_answer, 0) + coalesce(f.n_time_limit, 0)) > 0
                then '; ' || any_value(coalesce(f.n_no_answer, 0) + coalesce(f.n_time_limit, 0)) || coalesce(' of the ' || any_value(f.n_measured), '')
                    || ' answers of ' || any_value(f.arm_id) || ' never came' else '' end as sentence
    from fastest f
    left join against a using (run_id, suite_id, goal)
    left join mixed m using (run_id, suite_id)
    left join busy w on w.run_id = f.run_id
    group by f.run_id, f.suite_id, f.goal
),
-- Memory -----------------------------------------------------------------------------------------------------------
basis as (
    select run_id, suite_id,
        case
            when count(vram_peak_bytes) = count(*) then 'peak VRAM'
            when count(vram_idle_bytes) = count(*) then 'idle VRAM'
            when count(rss_peak_bytes) = count(*) and bool_and(coalesce(device, 'cpu') <> 'gpu') then 'peak RAM'
        end as what,
        count(distinct arm_id) as n_arms
    from arms group by run_id, suite_id
),
sizes as (
    select a.run_id, a.suite_id, a.arm_id, b.what, b.n_arms,
        case b.what when 'peak VRAM' then a.vram_peak_bytes when 'idle VRAM' then a.vram_idle_bytes else a.rss_peak_bytes end as bytes
    from arms a join basis b using (run_id, suite_id)
    where b.what is not null
),
memory as (
    select
        s.run_id, s.suite_id, 'memory' as goal,
        case when any_value(m.reason) is not null then 'not_compared' when any_value(n_arms) < 2 then 'not_measured'
            when count(*) filter (where bytes <= least * 1.01) > 1 then 'tie' else 'winner' end as status,
        list(arm_id order by bytes, arm_id) filter (where bytes <= least * 1.01) as arms,
        string_agg(arm_id || ' ' || format('{:.0f}', bytes / 1048576.0) || ' MiB', ', ' order by bytes, arm_id) as evidence,
        case when any_value(m.reason) is not null then any_value(m.reason) when any_value(n_arms) < 2 then 'fewer than two arms have the figure' end as reason,
        'Least memory (' || any_value(what) || '): '
            || array_to_string(list(arm_id order by bytes, arm_id) filter (where bytes <= least * 1.01), ', ')
            || case when count(*) filter (where bytes <= least * 1.01) > 1 then ' (within 1 %)' else '' end as sentence
    from (select *, min(bytes) over (partition by run_id, suite_id) as least from sizes) s
    left join mixed m using (run_id, suite_id)
    group by s.run_id, s.suite_id
),
found as (
    from quality union all by name from speed union all by name from memory
),
goals as (
    select k.*, g.* from runs_known k, (values ('quality', 'Best answers', 1), ('throughput', 'Highest decode rate', 2),
        ('answer_time', 'Fewest seconds to the answer', 3), ('memory', 'Least memory', 4)) g(goal, title, goal_order)
)
select
    g.run_id, g.suite_id, g.goal, g.goal_order,
    coalesce(f.status, 'not_measured') as status,
    case when f.status in ('winner', 'tie') then f.arms end as arms,
    case f.status
        when 'winner' then f.sentence
        when 'tie' then f.sentence
        when 'withheld' then g.title || ': the verdict is withheld'
        when 'not_compared' then g.title || ': the arms are not compared'
        else g.title || ': no verdict'
    end as text,
    case when f.status in ('winner', 'tie', 'withheld') then f.evidence end as evidence,
    coalesce(f.reason, case when f.status is null and g.goal = 'memory' then 'no measure of memory that every arm has'
        when f.status is null then 'not measured' end) as reason,
    case when g.goal = 'quality' then b.rule end as stopping_rule,
    case when g.goal = 'quality' then b.alpha end as stopping_alpha,
    case when g.goal = 'quality' then b.stops end as stops
from goals g
left join found f using (run_id, suite_id, goal)
left join by_decision b on b.run_id = g.run_id;
