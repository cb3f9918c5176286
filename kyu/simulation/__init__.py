"""The engine in virtual time: loads of many formats, a clock that jumps from event to event, and reports."""
