class JobQueue:
    def __init__(self):
        self._jobs = {}
        self.delays = []

    def add_job(self, job_id, data):
        self._jobs[job_id] = data
        return job_id

    def process_job(self, job_id, processor):
        success = False
        for attempt in range(4):
            if attempt > 0 and not success:
                self.delays.append(2 ** (attempt - 1))
            try:
                processor(self._jobs[job_id])
                success = True
            except Exception:
                pass
        return success
