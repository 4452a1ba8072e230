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
    select run_id, arm_id, suite_id, identity, generation_id, answer_tokens, passed, started_at,
        started_at + to_microseconds((1000 * took_ms)::bigint) as ended_at
    from cells
    where planned and complete
),
marked as (
    select *,
        coalesce(started_at >= max(ended_at) over (
            partition by run_id, arm_id, suite_id, identity order by started_at, ended_at, generation_id
            rows between unbounded preceding and 1 preceding), true)::bigint as opens
    from answers
    where ended_at is not null
),
numbered as (
    select *,
        sum(opens) over (partition by run_id, arm_id, suite_id, identity order by started_at, ended_at, generation_id) as stretch
    from marked
),
stretches as (
    select run_id, arm_id, suite_id, identity, stretch, min(started_at) as started_at, max(ended_at) as ended_at,
        count(*) as n, sum(answer_tokens) as tokens, count(answer_tokens) as n_tokens, count(*) filter (where passed) as solved
    from numbered
    group by run_id, arm_id, suite_id, identity, stretch
),
-- Each sample with what lies between it and the next one.
steps as (
    select run_id, arm_id, phase, sampled_at as moment, power_w, throttle_reasons,
        lead(sampled_at) over samples as next_at,
        lead(power_w) over samples as next_w,
        epoch_us(lead(sampled_at) over samples) - epoch_us(sampled_at) as us
    from telemetry
    window samples as (partition by run_id, arm_id order by sampled_at)
),
weighed as (
    select *,
        us > 0 and us <= 1e6 * gap and power_w is not null and next_w is not null as powered,
        us > 0 and us <= 1e6 * gap and throttle_reasons is not null as clocked,
        -- Bits of NVML's clock event reasons that slow work down; as in bench/telemetry/nvml.py.
        (throttle_reasons & 236) <> 0 as throttled
    from steps, setting
),
-- Sums up to each sample, so that a stretch of time is a difference of two of them however many samples it holds.
sums as (
    select *,
        coalesce(sum(case when powered then us / 1e6 * (power_w + next_w) / 2 end) over before, 0) as j,
        coalesce(sum(case when powered then us end) over before, 0) as powered_us,
        coalesce(sum(case when clocked then us end) over before, 0) as clocked_us,
        coalesce(sum(case when clocked and throttled then us end) over before, 0) as throttled_us
    from weighed
    window before as (partition by run_id, arm_id order by moment rows between unbounded preceding and 1 preceding)
),
ends as (
    select run_id, arm_id, suite_id, identity, stretch, started_at as moment, -1 as sign from stretches
    union all
    select run_id, arm_id, suite_id, identity, stretch, ended_at, 1 from stretches
),
placed as (
    select e.*, s.power_w, s.next_w, s.us, s.powered, s.clocked, s.throttled, s.j, s.powered_us, s.clocked_us, s.throttled_us,
        epoch_us(e.moment) - epoch_us(s.moment) as since
    from ends e
    asof left join sums s on s.run_id = e.run_id and s.arm_id = e.arm_id and s.moment <= e.moment
),
measured as (
    select run_id, arm_id, suite_id, identity, stretch,
        sum(sign * coalesce(j + case when powered then since / 1e6 * (power_w + (next_w - power_w) * since / us / 2) else 0 end, 0)) as j,
        sum(sign * coalesce(powered_us + case when powered then since else 0 end, 0)) as powered_us,
        sum(sign * coalesce(clocked_us + case when clocked then since else 0 end, 0)) as clocked_us,
        sum(sign * coalesce(throttled_us + case when clocked and throttled then since else 0 end, 0)) as throttled_us
    from placed
    group by run_id, arm_id, suite_id, identity, stretch
),
judged as (
    select s.*, m.j, m.clocked_us, m.throttled_us,
        epoch_us(s.ended_at) - epoch_us(s.started_at) as us,
        -- A millisecond for the clocks' rounding.
        m.powered_us >= epoch_us(s.ended_at) - epoch_us(s.started_at) - 1000 as whole
    from stretches s
    join measured m
        on m.run_id = s.run_id and m.arm_id = s.arm_id and m.suite_id = s.suite_id
        and m.identity is not distinct from s.identity and m.stretch = s.stretch
),
totals as (
    select run_id, arm_id, suite_id, identity,
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
    group by run_id, arm_id, suite_id, identity
),
idle as (
    select run_id, arm_id, sum(us * (power_w + next_w) / 2) / sum(us) as idle_w
    from weighed
    where phase = 'idle' and powered
    group by run_id, arm_id
),
missing_power as (
    select run_id, arm_id, max(reason) filter (where power_w is null) as reason from telemetry group by run_id, arm_id
),
counted as (
    select run_id, arm_id, suite_id, identity, count(*) as n_answers from answers group by run_id, arm_id, suite_id, identity
),
joined as (
    select c.*, t.n_timed, t.answering_s, t.tokens, t.solved, i.idle_w, a.device,
        case when a.device = 'cpu' then 0 else coalesce(t.n_powered, 0) end as n_powered,
        case when a.device is distinct from 'cpu' and t.n_powered > 0 then t.powered_s end as powered_s,
        case when a.device is distinct from 'cpu' and t.n_powered > 0 then t.powered_j end as powered_j,
        case when a.device is distinct from 'cpu' and t.clocked_s > 0 then t.throttled_s end as throttled_s,
        case when a.device is distinct from 'cpu' then coalesce(t.clocked_s, 0) else 0 end as clocked_s,
        p.reason as power_reason, p.run_id is not null as sampled
    from counted c
    left join totals t
        on t.run_id = c.run_id and t.arm_id = c.arm_id and t.suite_id = c.suite_id and t.identity is not distinct from c.identity
    left join idle i on i.run_id = c.run_id and i.arm_id = c.arm_id
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
