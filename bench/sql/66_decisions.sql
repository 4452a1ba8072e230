-- Where and why each arm of an `--until decided` run stopped: the newest decision on it. `rule` states the rule and its
-- null hypothesis, `alpha` the chance of any wrong statement in the whole run, `margin` the points within which arms
-- count as equivalent. `exit`: 'out' (worse than `against`), 'best', 'equivalent', 'futile' (what is left cannot decide
-- it) or 'limit' (asked to the last iteration without a decision).
create or replace view decisions_latest as
select *
from decisions
qualify row_number() over (partition by run_id, arm_id order by event_at desc, "exit") = 1;
