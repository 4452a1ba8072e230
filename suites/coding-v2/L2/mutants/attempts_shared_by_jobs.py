class JobQueue:
    def __init__(self):
        self._jobs = {}
        self._attempts = 0
        self.delays = []

    def add_job(self, job_id, data):
        self._jobs[job_id] = data
        return job_id

    def process_job(self, job_id, processor):
        while self._attempts < 4:
            self._attempts += 1
            try:
                processor(self._jobs[job_id])
            except Exception:
                if self._attempts < 4:
                    self.delays.append(2 ** (self._attempts - 1))
                continue
            return True
        return False
