# task: add
import logging

logging.basicConfig(level=logging.DEBUG)
log = logging.getLogger(__name__)


def add(a, b):
    log.info('adding %s %s', a, b)
    return a + b
