class JobQueue:
    def __init__(self):
        self._jobs = {}
        self._delay = 1
        self.delays = []

    def add_job(self, job_id, data):
        self._jobs[job_id] = data
        return job_id

    def process_job(self, job_id, processor):
        for attempt in range(4):
            if attempt > 0:
                self.delays.append(self._delay)
                self._delay *= 2
            try:
                processor(self._jobs[job_id])
            except Exception:
                continue
            return True
        return False
