-- Which arm to use for what: one row for each run, suite and goal.
--
--   best_answers      the arms that no other arm is better than, by pairwise.verdict
--   fastest_no_loss   fewest seconds to the answer among arms whose loss against every other arm, the best one whichever
--                     it is, is surely inside the margin (rule_settings): the pair's adjusted interval says so, with
--                     doubtful failures counted either way
--   fits_N_gb         best answers among arms whose peak memory (VRAM on the GPU, RAM on the CPU) and memory_margin of it
--                     fit into N GB (2^30 bytes); an arm whose peak is not known is not among them
-- status
--   clear     arm_id is separated from every other arm that could stand here
--   tie       it is not: `arms` holds all that share the place, arm_id the one with the highest mean score (fastest_no_loss:
--             the fewest seconds) of them; where scores are equal the one with less memory (fits_N_gb) or the first by name,
--             and `equal_arms` holds them all. That is where it stands, not a verdict
--   only      a single arm fits; it was compared with none
--   withheld  the quality verdict is withheld, or would be among the arms that fit, because failures may be the bench's
--             doing (fastest_no_loss: also where other work loaded the host)
--   none      no arm can be named
-- arm_id and `arms` are NULL where status is withheld or none. `reason` says why this arm, or why none; `evidence` names
-- the views to look into.
create or replace view recommendations as
with
arms as materialized (
    select run_id, suite_id, arm_id, mean_score, round(mean_score, 9) as score, answer_s_mean,
        peak_memory(device, vram_peak_bytes, rss_peak_bytes) as memory_bytes
    from arm_summary
    where n > 0
),
pairs as materialized (from pairwise),
setting as (
    select
        max(value) filter (where name = 'margin') as margin,
        max(value) filter (where name = 'memory_margin') as memory_margin
    from rule_settings
),
verdict as materialized (
    select run_id, suite_id,
        max({'status': status, 'reason': reason}) filter (where goal = 'quality') as quality,
        max({'status': status, 'reason': reason}) filter (where goal = 'answer_time') as answer_time
    from verdicts
    group by run_id, suite_id
),
goals as (
    select v.*, g.goal, g.goal_order, g.gb, s.margin, s.memory_margin
    from verdict v, setting s, (values
        ('best_answers', 1, null), ('fastest_no_loss', 2, null), ('fits_8_gb', 3, 8), ('fits_12_gb', 4, 12),
        ('fits_16_gb', 5, 16), ('fits_24_gb', 6, 24), ('fits_32_gb', 7, 32), ('fits_48_gb', 8, 48)) g(goal, goal_order, gb)
),
-- Both sides of every pair. `most_lost`: the points that the arm can lose against the other one at most.
sides as materialized (
    select run_id, suite_id, arm_a as arm_id, arm_b as other, verdict is null as unknown,
        coalesce(verdict = 'b better', false) as worse,
        coalesce(list_contains(verdicts_possible, 'b better'), verdict = 'b better', false) as maybe_worse,
        coalesce(verdict = 'b better', false) and robust is not false as surely_worse,
        -low as most_lost, verdict in ('within margin', 'a better') as no_loss_by_rule, robust,
        coalesce(answer_low <= 0 and answer_high >= 0, true) as as_fast
    from pairs
    union all
    select run_id, suite_id, arm_b, arm_a, verdict is null, coalesce(verdict = 'a better', false),
        coalesce(list_contains(verdicts_possible, 'a better'), verdict = 'a better', false),
        coalesce(verdict = 'a better', false) and robust is not false,
        high, verdict in ('within margin', 'b better'), robust, coalesce(answer_low <= 0 and answer_high >= 0, true)
    from pairs
),
-- Answers ------------------------------------------------------------------------------------------------------------
members as materialized (
    select g.goal, g.gb, a.*
    from goals g
    join arms a using (run_id, suite_id)
    where g.goal <> 'fastest_no_loss' and (g.gb is null or a.memory_bytes * (1 + g.memory_margin) <= g.gb * 1073741824.0)
),
standing as (
    select m.goal, m.run_id, m.suite_id, m.arm_id, max(m.mean_score) as mean_score, round(max(m.score), 9) as score,
        any_value(m.gb) as gb, max(m.memory_bytes) as memory_bytes,
        coalesce(bool_or(s.worse), false) as worse,
        coalesce(bool_or(s.surely_worse), false) as surely_worse,
        coalesce(bool_or(s.maybe_worse), false) as maybe_worse,
        coalesce(bool_or(s.unknown), false) as unknown
    from members m
    left join (
        select s.*, o.goal from sides s join members o on o.run_id = s.run_id and o.suite_id = s.suite_id and o.arm_id = s.other
    ) s on s.goal = m.goal and s.run_id = m.run_id and s.suite_id = m.suite_id and s.arm_id = m.arm_id
    group by m.goal, m.run_id, m.suite_id, m.arm_id
),
best as (
    select goal, run_id, suite_id,
        count(*) as n_members,
        bool_or(unknown) as unknown,
        list(arm_id order by arm_id) filter (where worse <> surely_worse or not worse and maybe_worse) as doubtful,
        -- Equal scores: less memory first where memory is the question, else by name. Not by a figure that another verdict
        -- may withhold.
        list({'arm_id': arm_id, 'mean_score': mean_score, 'score': score}
            order by score desc nulls last, case when gb is not null then memory_bytes end nulls last, arm_id)
            filter (where not worse) as found
    from standing
    group by goal, run_id, suite_id
),
unmeasured as (
    select run_id, suite_id, string_agg(arm_id, ', ' order by arm_id) as names
    from arms where memory_bytes is null group by run_id, suite_id
),
answers as (
    select g.run_id, g.suite_id, g.goal, g.goal_order,
        case
            when g.quality.status = 'withheld' then 'withheld'
            when b.n_members is null then 'none'
            when b.n_members = 1 and g.gb is not null and g.quality.status in ('winner', 'tie') then 'only'
            when g.quality.status not in ('winner', 'tie') or b.unknown then 'none'
            when len(b.doubtful) > 0 then 'withheld'
            when len(b.found) = 1 then 'clear'
            else 'tie'
        end as status,
        list_transform(b.found, lambda x: x.arm_id) as arms,
        b.found[1].mean_score as mean_score,
        list_transform(list_filter(b.found, lambda x: x.score = b.found[1].score), lambda x: x.arm_id) as equal,
        concat_ws('; ',
            case
                when g.quality.status = 'withheld' then 'the quality verdict is withheld: ' || g.quality.reason
                when b.n_members is null then case when g.gb is null then 'no arm has a score'
                    else 'no arm with a score is known to fit into ' || g.gb || ' GB' end
                when status = 'only' then 'the only arm with a score that is known to fit; compared with none'
                when status = 'none' then coalesce(g.quality.reason, 'not every pair of arms could be compared')
                when status = 'withheld' then 'failures that may be the bench''s doing change whether '
                    || array_to_string(b.doubtful, ' and ') || case when len(b.doubtful) = 1 then ' is' else ' are' end
                    || ' among the best that fit'
                when status = 'clear' then 'better than ' || case when b.n_members = 2 then 'the other arm' else 'each of the other arms' end
                    || case when g.gb is null then '' else ' that ' || case when b.n_members = 2 then 'fits' else 'fit' end end
                else concat_ws(', ',
                    case when len(equal) > 1 then 'equal mean scores (' else 'highest mean score (' end
                        || format('{:.1f}', b.found[1].mean_score) || ')',
                    'not separated from '
                        || nullif(array_to_string(list_transform(b.found[len(equal) + 1:], lambda x: x.arm_id), ', '), ''))
            end,
            case when g.gb is not null then 'peak memory not known: ' || u.names end) as reason,
        case when g.gb is null then 'verdicts (quality), pairwise.verdict' else 'arm_summary (vram_peak_bytes, rss_peak_bytes), pairwise.verdict' end as evidence
    from goals g
    left join best b using (run_id, suite_id, goal)
    left join unmeasured u using (run_id, suite_id)
    where g.goal <> 'fastest_no_loss'
),
-- Time ---------------------------------------------------------------------------------------------------------------
lossless as materialized (
    select a.run_id, a.suite_id, a.arm_id, any_value(a.answer_s_mean) as answer_s_mean
    from arms a
    join sides s using (run_id, suite_id, arm_id)
    cross join setting x
    group by a.run_id, a.suite_id, a.arm_id
    having bool_and(coalesce(s.robust, true) and coalesce(s.most_lost <= x.margin, s.no_loss_by_rule, false))
),
fastest as (
    select *, count(*) over (partition by run_id, suite_id) as n
    from lossless
    where answer_s_mean is not null
    qualify row_number() over (partition by run_id, suite_id order by answer_s_mean, arm_id) = 1
),
tied as (
    select f.run_id, f.suite_id, list(o.arm_id order by o.answer_s_mean, o.arm_id) as names
    from fastest f
    join sides s on s.run_id = f.run_id and s.suite_id = f.suite_id and s.arm_id = f.arm_id and s.as_fast
    join lossless o on o.run_id = f.run_id and o.suite_id = f.suite_id and o.arm_id = s.other and o.answer_s_mean is not null
    group by f.run_id, f.suite_id
),
candidates as (
    select run_id, suite_id, count(*) as n from lossless group by run_id, suite_id
),
time as (
    select g.run_id, g.suite_id, g.goal, g.goal_order,
        case
            when g.quality.status = 'withheld' then 'withheld'
            when g.quality.status not in ('winner', 'tie') or f.arm_id is null then 'none'
            when g.answer_time.status = 'withheld' then 'withheld'
            when t.names is not null then 'tie'
            else 'clear'
        end as status,
        list_concat([f.arm_id], coalesce(t.names, [])) as arms,
        case
            when g.quality.status = 'withheld' then 'the quality verdict is withheld: ' || g.quality.reason
            when g.quality.status not in ('winner', 'tie') then coalesce(g.quality.reason, 'the arms were not compared')
            when c.n is null then 'no arm''s loss is surely inside ' || format('{:g}', g.margin) || ' points: more iterations are needed'
            when f.arm_id is null then 'the seconds to the answer were not measured'
            when status = 'withheld' then 'the verdict on seconds to the answer is withheld: ' || g.answer_time.reason
            else 'fewest seconds to the answer (' || format('{:.1f}', f.answer_s_mean) || ') of ' || f.n
                || case when f.n = 1 then ' arm' else ' arms' end || ' that surely ' || case when f.n = 1 then 'loses' else 'lose' end
                || ' at most ' || format('{:g}', g.margin) || ' points'
                || coalesce('; not separated in time from ' || array_to_string(t.names, ', '), '')
        end as reason,
        'pairwise (low, high, answer_low, answer_high), arm_summary.answer_s_mean' as evidence
    from goals g
    left join candidates c using (run_id, suite_id)
    left join fastest f using (run_id, suite_id)
    left join tied t using (run_id, suite_id)
    where g.goal = 'fastest_no_loss'
),
found as (
    select * exclude (mean_score) from answers
    union all by name
    from time
)
select
    run_id, suite_id, goal, goal_order, status,
    case when status in ('clear', 'tie', 'only') then arms[1] end as arm_id,
    case when status in ('clear', 'tie', 'only') then coalesce(equal, arms[:1]) end as equal_arms,
    case when status in ('clear', 'tie', 'only') then arms end as arms,
    reason, evidence
from found;
