def process_job(self, job_id, processor):
    data = self.jobs[job_id]
    for attempt in range(4):
        if attempt > 0:
            self.delays.append(2 ** (attempt - 1))
        try:
            processor(data)
        except Exception:
            continue
        return True
    return False
