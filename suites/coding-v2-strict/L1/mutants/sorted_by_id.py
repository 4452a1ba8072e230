from collections import deque


class JobQueue:
    def __init__(self):
        self._waiting = deque()
        self._results = {}

    def add_job(self, job_id, data):
        self._waiting = deque(sorted([*self._waiting, (job_id, data)], key=lambda job: job[0]))
        return job_id

    def get_next_job(self):
        return self._waiting.popleft() if self._waiting else None

    def set_result(self, job_id, result):
        self._results[job_id] = result

    def get_result(self, job_id):
        return self._results.get(job_id)
