"""The process in the centre: it takes what agents report, decides with the rooms, acts on the scheduler, and serves
API and console.
"""
