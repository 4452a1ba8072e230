-- Energy and throttling of the GPU while an arm answered: one row for each arm of a run and each identity.
--
-- The samples' power is integrated by the trapezoid rule over the time of the answers that count (from the request to
-- the last token), not over the pauses between them. Two samples further apart than power_gap_s (rule_settings) are not
-- bridged: the time between them is not measured, and neither is an answer that any of it falls into. Answers that
-- overlap (several questions at a time) are one stretch of time. `n_powered` of `n_answers` answers were measured whole;
-- `energy_j` is of all answers and so NULL unless every one was. `powered_j` is of the measured ones, and the figures per
-- token and per solved level are of those alone: joules of all of them, passed or not, among their answer tokens, and
-- among the levels they solved.
--
-- `idle_w` is the mean power after the load and before the first question; the columns `_above_idle` have it subtracted
-- for as long as the answers took, which leaves what answering adds to a loaded model. `throttled_s` are the seconds of
-- answering in which the clocks were held down (power cap, heat, power brake), of the `clocked_s` in which that was seen.
-- The power of a CPU is not sampled: an arm that ran there has none, whatever the GPU beside it drew.
create or replace view energy as
with
setting as (
    select max(value) as gap from rule_settings where name = 'power_gap_s'
),
answers as (
    select run_id, arm_id, suite_id, identity, answer_tokens, passed, epoch_us(started_at) as started,
        epoch_us(started_at) + (1000 * took_ms)::bigint as ended
    from cells
    where planned and complete
),
-- Numbers in place of names from here on: samples and answers are sorted and matched by them, several times.
arms as materialized (
    select *, dense_rank() over (order by run_id, arm_id) as timeline,
        row_number() over (order by run_id, arm_id, suite_id, identity) as who
    from (
        select run_id, arm_id, suite_id, identity, count(*) as n_answers from answers group by run_id, arm_id, suite_id, identity
    )
),
timed as (
    select b.who, a.answer_tokens, a.passed, a.started, a.ended
    from answers a
    join arms b on b.run_id = a.run_id and b.arm_id = a.arm_id and b.suite_id = a.suite_id
        and b.identity is not distinct from a.identity
    where a.ended is not null
),
marked as (
    select *,
        coalesce(started >= max(ended) over (partition by who order by started, ended
            rows between unbounded preceding and 1 preceding), true)::bigint as opens
    from timed
),
numbered as (
    -- Answers with the same times are in the same stretch.
    select *, sum(opens) over (partition by who order by started, ended) as stretch
    from marked
),
stretches as (
    select who, stretch::bigint as stretch, min(started) as started, max(ended) as ended,
        count(*) as n, sum(answer_tokens) as tokens, count(answer_tokens) as n_tokens, count(*) filter (where passed) as solved
    from numbered
    group by who, stretch
),
-- Each sample with what lies between it and the next one.
steps as (
    select a.timeline, t.phase = 'idle' as idle, epoch_us(t.sampled_at) as moment, t.power_w, t.throttle_reasons,
        lead(t.power_w) over samples as next_w,
        lead(epoch_us(t.sampled_at)) over samples - moment as us
    from telemetry t
    join (select distinct run_id, arm_id, timeline from arms) a using (run_id, arm_id)
    window samples as (partition by a.timeline order by epoch_us(t.sampled_at))
),
weighed as (
    select timeline, idle, moment, power_w, next_w, us,
        us > 0 and us <= 1e6 * gap and power_w is not null and next_w is not null as powered,
        us > 0 and us <= 1e6 * gap and throttle_reasons is not null as clocked,
        -- Bits of NVML's clock event reasons that slow work down; as in bench/telemetry/nvml.py.
        (throttle_reasons & 236) <> 0 as throttled
    from steps, setting
),
-- Sums up to each sample, so that a stretch of time is a difference of two of them however many samples it holds.
sums as (
    select * exclude (idle),
        coalesce(sum(case when powered then us / 1e6 * (power_w + next_w) / 2 end) over before, 0) as j,
        coalesce(sum(case when powered then us end) over before, 0)::bigint as powered_us,
        coalesce(sum(case when clocked then us end) over before, 0)::bigint as clocked_us,
        coalesce(sum(case when clocked and throttled then us end) over before, 0)::bigint as throttled_us
    from weighed
    window before as (partition by timeline order by moment rows between unbounded preceding and 1 preceding)
),
ends as (
    select a.timeline, s.who, s.stretch, unnest([s.started, s.ended]) as moment, unnest([-1, 1]) as sign
    from stretches s
    join arms a using (who)
),
placed as (
    select e.*, s.power_w, s.next_w, s.us, s.powered, s.clocked, s.throttled, s.j, s.powered_us, s.clocked_us, s.throttled_us,
        e.moment - s.moment as since
    from ends e
    asof left join sums s on s.timeline = e.timeline and s.moment <= e.moment
),
measured as (
    select who, stretch,
        sum(sign * coalesce(j + case when powered then since / 1e6 * (power_w + (next_w - power_w) * since / us / 2) else 0 end, 0)) as j,
        sum(sign * coalesce(powered_us + case when powered then since else 0 end, 0)) as powered_us,
        sum(sign * coalesce(clocked_us + case when clocked then since else 0 end, 0)) as clocked_us,
        sum(sign * coalesce(throttled_us + case when clocked and throttled then since else 0 end, 0)) as throttled_us
    from placed
    group by who, stretch
),
judged as (
    select s.*, m.j, m.clocked_us, m.throttled_us,
        s.ended - s.started as us,
        -- A millisecond for the clocks' rounding.
        m.powered_us >= s.ended - s.started - 1000 as whole
    from stretches s
    join measured m using (who, stretch)
),
totals as (
    select who,
        sum(n) as n_timed,
        coalesce(sum(n) filter (where whole), 0) as n_powered,
        sum(us) / 1e6 as answering_s,
        coalesce(sum(us) filter (where whole), 0) / 1e6 as powered_s,
        sum(j) filter (where whole) as powered_j,
        case when count(*) filter (where whole and n_tokens < n) = 0 then sum(tokens) filter (where whole) end as tokens,
        sum(solved) filter (where whole) as solved,
        sum(throttled_us) / 1e6 as throttled_s,
        sum(clocked_us) / 1e6 as clocked_s
    from judged
    group by who
),
idle as (
    select timeline, sum(us * (power_w + next_w) / 2) / sum(us) as idle_w
    from weighed
    where idle and powered
    group by timeline
),
missing_power as (
    select run_id, arm_id, max(reason) filter (where power_w is null) as reason from telemetry group by run_id, arm_id
),
joined as (
    select c.*, t.n_timed, t.answering_s, t.tokens, t.solved, i.idle_w, a.device,
        case when a.device = 'cpu' then 0 else coalesce(t.n_powered, 0) end as n_powered,
        case when a.device is distinct from 'cpu' and t.n_powered > 0 then t.powered_s end as powered_s,
        case when a.device is distinct from 'cpu' and t.n_powered > 0 then t.powered_j end as powered_j,
        case when a.device is distinct from 'cpu' and t.clocked_s > 0 then t.throttled_s end as throttled_s,
        case when a.device is distinct from 'cpu' then coalesce(t.clocked_s, 0) else 0 end as clocked_s,
        p.reason as power_reason, p.run_id is not null as sampled
    from arms c
    left join totals t on t.who = c.who
    left join idle i on i.timeline = c.timeline
    left join missing_power p on p.run_id = c.run_id and p.arm_id = c.arm_id
    left join arms_latest a on a.run_id = c.run_id and a.arm_id = c.arm_id
)
select
    run_id, arm_id, suite_id, identity, n_answers, n_powered, answering_s, powered_s,
    case when n_powered = n_answers then powered_j end as energy_j,
    powered_j,
    idle_w,
    powered_j - idle_w * powered_s as powered_j_above_idle,
    case when tokens > 0 then powered_j / tokens end as j_per_answer_token,
    case when tokens > 0 then (powered_j - idle_w * powered_s) / tokens end as j_per_answer_token_above_idle,
    case when solved > 0 then powered_j / solved end as j_per_solved_level,
    case when solved > 0 then (powered_j - idle_w * powered_s) / solved end as j_per_solved_level_above_idle,
    tokens as powered_answer_tokens,
    solved as powered_solved,
    throttled_s, clocked_s,
    nullif(concat_ws('; ',
        case
            when device = 'cpu' then 'the arm ran on the CPU, whose power is not sampled'
            when not sampled then 'there are no samples of the arm'
            when n_powered < n_answers then (n_answers - n_powered) || ' of ' || n_answers || ' answers without power all the way'
                || coalesce(' (' || power_reason || ')', '')
        end,
        case when n_powered > 0 and idle_w is null then 'no power was sampled between load and first question' end,
        case when n_powered > 0 and tokens is null then 'the answer tokens of a measured answer are not known' end,
        case when n_powered > 0 and solved = 0 then 'no measured answer solved its level' end), '') as reason
from joined;
