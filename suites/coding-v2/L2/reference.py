class JobQueue:
    MAX_ATTEMPTS = 4

    def __init__(self):
        self._jobs = {}
        self.delays = []

    def add_job(self, job_id, data):
        self._jobs[job_id] = data
        return job_id

    def process_job(self, job_id, processor):
        data = self._jobs[job_id]
        for attempt in range(self.MAX_ATTEMPTS):
            if attempt > 0:
                self.delays.append(2 ** (attempt - 1))
            try:
                processor(data)
            except Exception:
                continue
            return True
        return False
