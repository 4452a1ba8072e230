from collections import deque


class JobQueue:
    def __init__(self):
        self._waiting = deque()
        self._results = {}

    def add_job(self, job_id, data):
        self._waiting.append((job_id, data))
        return job_id

    def get_next_job(self):
        return self._waiting.pop() if self._waiting else None

    def set_result(self, job_id, result):
        self._results[job_id] = result

    def get_result(self, job_id):
        return self._results.get(job_id)
