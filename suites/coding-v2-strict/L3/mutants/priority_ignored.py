class JobQueue:
    def __init__(self):
        self._jobs = []

    def add_job(self, job_id, data, priority):
        self._jobs.append((priority, job_id, data))
        return job_id

    def get_next_job(self):
        if not self._jobs:
            return None
        _, job_id, data = self._jobs.pop(0)
        return job_id, data
