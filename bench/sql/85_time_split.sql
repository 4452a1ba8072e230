-- Where an arm's time went, a row for each part: seconds that add up to nearly all of the arm's wall time where grading
-- waits for the server, and to more where it runs beside it.
--
-- part      load, probe, prompt (sending the request to the first token), reasoning (to the first token of the answer),
--           answer (to the last token), unfinished (requests that came to nothing), grading (in the sandbox)
-- seconds   sum; NULL where nothing was measured. `n` is the number of values in it.
create or replace view time_split as
with asked as (
    select
        run_id, arm_id, generation_id, any_value(is_complete(outcome)) as complete, any_value(first_token_ms) as first_ms,
        any_value(coalesce(first_answer_ms, last_token_ms)) as answer_ms, any_value(last_token_ms) as last_ms,
        any_value(total_ms) as total_ms
    from generations group by run_id, arm_id, generation_id
),
probed as (
    select run_id, arm_id, request_id, any_value(total_ms) as total_ms from probes group by run_id, arm_id, request_id
),
graded as (
    select run_id, arm_id, grade_id, any_value(wall_ms) as wall_ms
    from grades where grade_kind = 'headline' group by run_id, arm_id, grade_id
),
parts as (
    select run_id, arm_id, 1 as part_order, 'load' as part, load_ms as ms from arms_latest
    union all select run_id, arm_id, 2, 'probe', total_ms from probed
    union all select run_id, arm_id, 3, 'prompt', first_ms from asked where complete
    union all select run_id, arm_id, 4, 'reasoning', answer_ms - first_ms from asked where complete
    union all select run_id, arm_id, 5, 'answer', last_ms - answer_ms from asked where complete
    union all select run_id, arm_id, 6, 'unfinished', total_ms from asked where not complete
    union all select run_id, arm_id, 7, 'grading', wall_ms from graded
)
select run_id, arm_id, part_order, part, sum(ms) / 1000 as seconds, count(ms) as n
from parts
group by run_id, arm_id, part_order, part;
