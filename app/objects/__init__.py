"""The API's objects: what is built, stored, drawn, exported and answered is the same plain JSON, checked key by key.

One file a noun. A key that is `NotRequired` may lack: the object is of another stage, or an older server stored it.
Times are in µs, sizes in bytes, shares 0 to 1, where no name says otherwise.
"""
