-- Why levels were not passed: how often each kind of failure came, with one example (the first iteration's). A verdict
-- that passed and is suspect is the kind `suspect`. What was not measured is no failure of the model: see `missing`.
create or replace view failures as
with failed as (
    select c.*, case when suspect and verdict_passed then 'suspect' else outcome end as kind
    from cells c
    where planned and measured and not passed
),
counted as (
    select
        run_id, arm_id, suite_id, identity, level_id, kind,
        count(*) as n,
        min_by({'iteration': iteration, 'generation_id': generation_id, 'grade_id': grade_id}, (iteration, grade_id)) as example
    from failed
    group by run_id, arm_id, suite_id, identity, level_id, kind
)
select
    c.run_id, c.arm_id, c.suite_id, c.identity, c.level_id, l.level_index, c.kind, c.n,
    c.example.iteration as example_iteration,
    c.example.generation_id as example_generation_id,
    c.example.grade_id as example_grade_id,
    g.detail as example_detail,
    g.first_failed_test as example_test,
    g.tests_passed as example_tests_passed,
    g.tests_expected as example_tests_expected,
    g.missing_name as example_missing_name,
    g.suspect_reasons as example_suspect_reasons,
    g.code_rule as example_code_rule,
    g.code as example_code
from counted c
join grades g on g.grade_id = c.example.grade_id
left join levels l on l.run_id = c.run_id and l.suite_id = c.suite_id and l.level_id = c.level_id
qualify row_number() over (partition by c.run_id, c.arm_id, c.identity, c.level_id, c.kind order by g.graded_at desc) = 1;

-- Which name the tests needed and the solution lacked, how often, and what was offered instead.
create or replace view interface_misses as
select
    c.run_id, c.arm_id, c.suite_id, c.identity, c.level_id, g.missing_name,
    count(distinct g.grade_id) as n,
    list_sort(list_distinct(flatten(list(coalesce(g.offered, []::varchar[]))))) as offered,
    min(c.iteration) as example_iteration
from cells c
join grades g using (grade_id)
where c.planned and c.measured and not c.passed and g.outcome = 'interface' and g.missing_name is not null
group by c.run_id, c.arm_id, c.suite_id, c.identity, c.level_id, g.missing_name;
