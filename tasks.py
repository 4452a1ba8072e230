from invoke import task
@task
def hi(c):
    "hi"
    print("hi")
