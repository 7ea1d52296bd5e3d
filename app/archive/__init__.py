"""The Archive: validations recorded on named hardware, shipped with the app."""
