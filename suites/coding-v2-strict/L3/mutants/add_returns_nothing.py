import heapq
from itertools import count


class JobQueue:
    def __init__(self):
        self._heap = []
        self._arrivals = count()

    def add_job(self, job_id, data, priority):
        heapq.heappush(self._heap, (-priority, next(self._arrivals), job_id, data))

    def get_next_job(self):
        if not self._heap:
            return None
        _, _, job_id, data = heapq.heappop(self._heap)
        return job_id, data
