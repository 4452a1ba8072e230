class JobQueue:
    def __init__(self):
        self._jobs = {}
        self.delays = {}

    def add_job(self, job_id, data):
        self._jobs[job_id] = data
        return job_id

    def process_job(self, job_id, processor):
        self.delays[job_id] = []
        for attempt in range(4):
            if attempt > 0:
                self.delays[job_id].append(2 ** (attempt - 1))
            try:
                processor(self._jobs[job_id])
            except Exception:
                continue
            return True
        return False
