-- Formulas that the views share. Each is one expression and NULL where it is not defined.

-- Decode rate in tokens per second, from the server's raw count and time. The first token comes out of the prompt's
-- last step, so n tokens took n - 1 decode steps; below two tokens there is no rate.
create or replace macro decode_rate(n, ms) as
    case when n >= 2 and ms > 0 then (n - 1) * 1000.0 / ms end;

-- Prompt rate in tokens per second.
create or replace macro prompt_rate(n, ms) as
    case when n >= 1 and ms > 0 then n * 1000.0 / ms end;

-- The score of an iteration in percent: none where one of its levels was not measured.
create or replace macro iteration_score(n_levels, n_measured, points, max_points) as
    case when n_measured = n_levels and max_points > 0 then 100.0 * points / max_points end;

-- A time in milliseconds: NULL where it cannot be one (negative, no number, or more than 30 years).
create or replace macro elapsed(ms) as case when ms >= 0 and ms < 1e12 then ms end;

-- Difference of two means, a - b. What differs in the last digits only is no difference: sums of the same values in
-- another order do.
create or replace macro difference_of(a, b) as
    case when abs(a - b) <= 1e-9 * greatest(abs(a), abs(b)) then 0.0 else a - b end;

-- Ends of the Wilson 95 % interval of k passes among n, in percent (Wilson 1927; z = 1.959963984540054).
-- The ends at k = 0 and k = n are exact by definition, not by luck of rounding, and 0 <= low <= rate <= high <= 100.
create or replace macro wilson_low(k, n) as
    case
        when n is null or k is null or n <= 0 then null
        when k <= 0 then 0.0::double
        else greatest(0.0::double, least(
            100.0::double * k / n,
            100.0::double * (k + 1.9207294103470627 - 1.959963984540054 * sqrt(k::double * (n - k) / n + 0.9603647051735313))
                / (n + 3.8414588206941254)))
    end;

create or replace macro wilson_high(k, n) as
    case
        when n is null or k is null or n <= 0 then null
        when k >= n then 100.0::double
        else least(100.0::double, greatest(
            100.0::double * k / n,
            100.0::double * (k + 1.9207294103470627 + 1.959963984540054 * sqrt(k::double * (n - k) / n + 0.9603647051735313))
                / (n + 3.8414588206941254)))
    end;

-- Student's t, 0.975 quantile, by the expansion in 1/df (Abramowitz and Stegun 26.7.5). It is used only beyond the
-- table t_quantiles (df > 1000), where its error is below 1e-11.
create or replace macro t975_large(df) as
    1.959963984540054 + 2.372271230298562 / df::double + 2.8224986157396112 / pow(df::double, 2)
        + 2.555849679507722 / pow(df::double, 3);

-- Whether a generation says something about the model's answer. The rest is the server's or the network's doing: it is
-- not measured, is asked again, and is outside the score.
create or replace macro is_complete(outcome) as
    outcome in ('ok', 'time_limit', 'loop_ended', 'context_overflow');
