"""Child processes for work on what a user sent: started or forked warm, bounded, killable. No torch, nothing of app."""
