import threading


class JobQueue:
    def __init__(self):
        self._lock = threading.Lock()
        self._waiting = []
        self._busy = set()
        self._results = {}

    def add_job(self, job_id, data):
        with self._lock:
            self._waiting.append((job_id, data))
        return job_id

    def process_next(self, processor):
        for job in list(self._waiting):
            if job[0] not in self._busy:
                break
        else:
            return None
        job_id, data = job
        self._busy.add(job_id)
        result = processor(data)
        with self._lock:
            self._waiting.remove(job)
            self._results[job_id] = result
        return job_id

    def get_result(self, job_id):
        with self._lock:
            return self._results.get(job_id)
