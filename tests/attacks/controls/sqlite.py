# task: add
import sqlite3


def add(a, b):
    db = sqlite3.connect(':memory:')
    return db.execute('select ? + ?', (a, b)).fetchone()[0]
