import threading


class JobQueue:
    def __init__(self):
        self._lock = threading.Lock()
        self._waiting = []
        self._results = {}

    def _store(self, job_id, result):
        with self._lock:
            self._results[job_id] = result

    def add_job(self, job_id, data):
        with self._lock:
            self._waiting.append((job_id, data))
        return job_id

    def process_next(self, processor):
        with self._lock:
            if not self._waiting:
                return None
            job_id, data = self._waiting.pop(0)
            result = processor(data)
            self._store(job_id, result)
        return job_id

    def get_result(self, job_id):
        with self._lock:
            return self._results.get(job_id)
